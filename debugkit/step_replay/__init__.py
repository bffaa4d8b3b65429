"""Repeat a step operation by operation, to find the one that produced the first non-finite value."""
