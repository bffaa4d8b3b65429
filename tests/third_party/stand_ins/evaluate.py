"""Accuracy and F1 of two classes, with the interface of evaluate's metrics."""

from __future__ import annotations

from typing import Any


class _Metric:
    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []

    def add_batch(self, predictions: Any, references: Any) -> None:
        self._pairs += zip(predictions.tolist(), references.tolist(), strict=True)

    def compute(self) -> dict[str, float]:
        pairs, self._pairs = self._pairs, []
        both = sum(guess == truth == 1 for guess, truth in pairs)
        either = sum(guess for guess, _ in pairs) + sum(truth for _, truth in pairs)
        return {"accuracy": sum(guess == truth for guess, truth in pairs) / len(pairs), "f1": 2 * both / max(either, 1)}


def load(*_names: str, **_options: Any) -> _Metric:
    """A new metric."""
    return _Metric()
