"""Correct programs, by topic, and the test that nothing is found in them."""
