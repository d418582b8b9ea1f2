"""Calibration: readers of measured files, the fitter, and the store of fitted parameters.

Stands on the data base and the core; the core does not know it.
"""
