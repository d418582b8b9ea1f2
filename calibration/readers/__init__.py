"""Readers of measured files: each turns one kind of file into rows, and is a plugin of its own.

Calibration: stands on the data base and the core.
"""
