"""No model: libraries import names from here that these scripts do not call."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def build(*_arguments: Any, **_options: Any) -> Any:
        raise NotImplementedError(f"The stand-in for torchvision has no {name}.")

    return build
