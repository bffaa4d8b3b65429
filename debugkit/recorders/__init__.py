"""Recorders that attach to PyTorch, record something about a run, and remove themselves completely."""
