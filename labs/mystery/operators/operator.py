"""What a fault operator is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from labs.grading.catalog import Chapter
from labs.mystery.compose import Program

POLICY, TRAIN = "policy.py", "train.py"
Level = Literal[1, 2]


_FUNCTIONS = "import torch.nn.functional as F\n"


@dataclass(frozen=True)
class Edit:
    """One edit of the templates' text; it applies where `before` occurs exactly once, and so does each of `also`."""

    file: str
    before: str
    after: str
    also: tuple[tuple[str, str], ...] = ()
    """Further places in the same file. A text that is replaced by itself is only required to be there."""


@dataclass(frozen=True)
class Operator:
    """One fault: the same mistake in every program that has the place for it."""

    id: str
    chapter: Chapter
    level: Level
    """1 if it is loud or visible at first sight, 2 if it is silent."""
    source: str
    """The debugkit rule that the fault is taken from, or the lab."""
    place: str
    """A key of `PLACES`: the part of the program."""
    shows: str
    """The aspect that measures it."""
    symptom: str
    """What a user sees, without the reason."""
    wrong: str
    """What is wrong, in one or two sentences: the third hint."""
    edits: tuple[Edit, ...]
    """The first that applies to a program is made."""

    def planted(self, program: Program, files: Mapping[str, str]) -> dict[str, str] | None:
        """The files with the fault; None if the program has no place for it."""
        for edit in self.edits:
            text: str | None = files[edit.file]
            for before, after in ((edit.before, edit.after), *edit.also):
                text = _replaced(text, program.filled(before), program.filled(after))
            if text is not None:
                return {**files, edit.file: _without_unused_import(text)}
        return None


def _without_unused_import(text: str) -> str:
    """The text without the import of functions, where the fault took away their only use."""
    return text if re.search(r"\bF\.", text) else text.replace(_FUNCTIONS, "")


def _replaced(text: str | None, before: str, after: str) -> str | None:
    """The text with an edit; None if the place is not there exactly once."""
    return text.replace(before, after) if text is not None and text.count(before) == 1 else None


PLACES: dict[str, str] = {
    "pixels": "Look at the image, from the camera's bytes to the tower's input.",
    "tower": "Look at the image tower, from its input to its one feature per frame.",
    "text": "Look at the instruction, from the sentence to its one feature.",
    "fusion": "Look at the part that joins image, instruction and state.",
    "head": "Look at the head: how it turns a feature into a chunk, and into a loss.",
    "scaler": "Look at the scale of the actions: how it is measured, applied and undone.",
    "policy": "Look at the class of the whole policy: how it is put together, trained and asked.",
    "runner": "Look at the class that acts on the robot.",
    "data": "Look at how one frame of the data set is made.",
    "order": "Look at the functions that choose which frames are visited, when and by whom.",
    "optimizer": "Look at what the optimizer is given.",
    "scheduler": "Look at the learning rate, from the recipe to the update.",
    "loop": "Look at the order of the calls in one training step.",
    "checkpoint": "Look at what a checkpoint saves and restores.",
    "evaluation": "Look at the function that computes the validation loss.",
    "recipe": "Look at how the settings of a run are read.",
    "processes": "Look at what several processes do with their frames and their losses.",
}
"""The first hint: the part of the program."""

MEASUREMENTS: dict[str, str] = {
    "checkpoint": "Compare the names in `policy.state_dict()` and `requires_grad` of each parameter with what the classes declare.",
    "tokens": "Print ids and mask of a short, a long and a very long sentence.",
    "scaling": "Fit the scale to actions of which you know the mean and the range, padding included. Normalise one action and undo it.",
    "data": "Print one frame in the middle and the last frames of an episode, and compare them with the episode by hand.",
    "order": "Print the order of two epochs, the frames of each of two processes, and both parts of the split.",
    "outputs": "Compute loss and chunk of one frame alone, in a batch with others, and with more padding. Then follow the shapes and values through `forward`.",
    "gradients": "Run one backward and print the norm of each parameter's gradient. Ask of each term of the loss which frames and steps it counts.",
    "modes": "Call the policy twice in evaluation mode and twice in training mode, and print `training` of each module after `predict`.",
    "optimizer": "Print the optimizer's groups: the names of the parameters in each, their rate and their decay.",
    "training": "Train on a few batches and print, for each update, the rate, the norm of the gradient and how far each parameter has moved.",
    "precision": "Register a forward hook on every linear layer and print the dtype of its output in one training step.",
    "evaluation": "Validate on batches of different sizes, twice, and print the policy's mode, its buffers and `torch.is_grad_enabled()` in `forward`.",
    "serving": "Run two episodes with a reset between them, and compare each action with `policy.predict` for the same frame.",
    "resume": "Save a run after four steps, load it into fresh objects, and compare the next losses and the rate with those of an uninterrupted run.",
    "memory": "Count the tensors and the autograd graphs that the program still holds after four steps and after eight.",
    "recipe": "Read a recipe from a file and a command line that disagree, with values that are texts, and with a name that is misspelt.",
    "combine": "Combine the losses of two processes of which one has far more frames, then of two of which one has none.",
}
"""The second hint: what to measure, by aspect."""
