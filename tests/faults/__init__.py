"""Faults planted in the correct programs, by topic, and the test that each is found."""
