"""Grading a class: the submissions of many learners, from a folder that a course platform exported."""

from __future__ import annotations
