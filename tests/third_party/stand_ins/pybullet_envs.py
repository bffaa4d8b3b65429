"""Registers nothing: the scripts get the name of an environment as an argument."""
