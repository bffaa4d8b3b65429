"""Faults planted into composed programs, at scale: `python tests/injection/run.py`, and nothing here is tuned to a rule."""
