"""Whether a step after saving and loading is the step that would have been made without."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnsavedState:
    """Something that a training step changed and that no state_dict holds."""

    owner: str
    """Path of the module, or the optimizer's class."""
    name: str
    in_optimizer: bool


@dataclass(frozen=True, slots=True)
class ResumedStep:
    """The second step of two, against: one step, save, load into what there was at the start, one step."""

    compared: int
    """Parameters, buffers and optimizer entries."""
    different: tuple[str, ...]
    loss_differs: bool
    unsaved: tuple[UnsavedState, ...]
    load_error: str | None = None
    repeatable: bool = True
    """Whether the two steps without saving come out alike each time; otherwise nothing can be said."""
