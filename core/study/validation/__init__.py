"""Validation: published and measured figures beside predicted ones, and how far apart they are.

Floor: study. ``points`` reads files, ``scenarios`` says what a row asks, ``run`` predicts, ``report`` sums up;
``claims`` holds the evidence of plugins against the tool.
"""
