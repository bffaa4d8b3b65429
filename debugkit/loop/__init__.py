"""One source of training-loop events, and the observers of these events."""
