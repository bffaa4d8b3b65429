"""Faults planted into composed programs, at scale: `python tests/injection/run.py`."""
