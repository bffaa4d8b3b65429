"""How many threads the checks compute with where an author runs many grades."""

from __future__ import annotations


def use_one_thread() -> None:
    """Compute with one thread from now on, as the child does.

    With more, several graders on one machine slow each other down ten times, and the last bits differ from the child's.
    """
    import torch

    torch.set_num_threads(1)
