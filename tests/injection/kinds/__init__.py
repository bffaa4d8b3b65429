"""The kinds of programs, by what they are trained on."""
