"""TODO(author): how it is measured, in one sentence."""

from __future__ import annotations

from debugkit.interventions.passes import evaluate
from debugkit.rules.dk319_input_scale import InputScale
from debugkit.setup import TrainingSetup

_THRESHOLD = 1e6


def measure(setup: TrainingSetup) -> InputScale:
    """One evaluation pass. Raises NotExamined where the question has no meaning for this setup."""
    loss = float(evaluate(setup, output_needed=False).loss)
    return InputScale(measured=abs(loss), threshold=_THRESHOLD)
