"""Capstones: projects of several files with two or three faults that hide one another, without a lesson.

`capstone.py` reads them, `parts.py` says which faults a grade shows to be gone. Each capstone is a folder here.
"""
