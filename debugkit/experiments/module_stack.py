"""Inside which module a forward pass is at the moment."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from debugkit.subject import Subject


class ModuleStack:
    """`with ModuleStack(subject) as running:`; `running.innermost` is the path of the module that runs, or None."""

    def __init__(self, subject: Subject) -> None:
        self._paths = subject.module_paths
        self._running: list[str] = []
        self._handles: list[RemovableHandle] = []

    @property
    def innermost(self) -> str | None:
        return self._running[-1] if self._running else None

    def __enter__(self) -> Self:
        for module in self._paths:
            if not isinstance(module, torch.jit.ScriptModule):
                self._handles.append(module.register_forward_pre_hook(self._enters))
                self._handles.append(module.register_forward_hook(self._leaves, always_call=True))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _enters(self, module: nn.Module, _inputs: Any) -> None:
        self._running.append(self._paths[module])

    def _leaves(self, module: nn.Module, _inputs: Any, _output: Any) -> None:
        if self._running and self._running[-1] == self._paths[module]:
            self._running.pop()
