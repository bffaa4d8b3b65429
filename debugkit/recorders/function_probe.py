"""The base class of probes that see each call of a torch function, with the module in which it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch.overrides import TorchFunctionMode

from debugkit._torch_private import leave
from debugkit.probe import Observed, Probe
from debugkit.recorders.module_calls import follow_modules
from debugkit.setup import TrainingSetup


def property_read_by(func: Callable[..., Any]) -> str | None:
    """The property of a tensor that an intercepted function reads, such as `data` or `T`; None for other functions."""
    if getattr(func, "__name__", "") != "__get__":
        return None
    name: str = getattr(getattr(func, "__self__", None), "__name__", "")
    return name


class FunctionProbe(Probe[Observed]):
    """Enters a mode together with hooks that keep the stack of running modules in `running`."""

    partial = True

    def __init__(self, setup: TrainingSetup, mode: TorchFunctionMode, running: list[str]) -> None:
        super().__init__(setup)
        self._mode = mode
        self._following = follow_modules(setup.model, running)

    def __enter__(self) -> Self:
        self._following.__enter__()
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *_: object) -> None:
        leave(self._mode)
        self._following.remove()
