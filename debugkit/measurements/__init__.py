"""Measurements that several rules share, one folder each.

`__init__.py` holds the observation and imports no torch. `measure.py` holds the measurement.
"""
