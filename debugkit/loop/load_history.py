"""Records each `load_state_dict(strict=False)`: which names matched."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn

from debugkit.frames import user_line
from debugkit.loop.state_loads import StateLoad, StateLoads
from debugkit.module_paths import plain_path, renaming
from debugkit.recorders.patches import Patches

_REMEMBERED = 64


class LoadHistory:
    """Observes inside the `with` block. Loads of a module that does not exist any more are forgotten."""

    def __init__(self) -> None:
        self._loads: weakref.WeakKeyDictionary[nn.Module, StateLoad] = weakref.WeakKeyDictionary()
        self._patches = Patches()

    def __enter__(self) -> Self:
        self._patches.__enter__()
        self._patches.around(nn.Module, "load_state_dict", returned=self._loaded)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._patches.__exit__(kind, error, at)

    def observation(self, models: Iterable[tuple[str, nn.Module]]) -> StateLoads:
        """The loads so far. `models` are those that train, with the prefixes of their paths."""
        if not self._loads:
            return StateLoads(())
        paths = {
            module: plain_path(prefix + path) for prefix, model in models for path, module in model.named_modules()
        }
        return StateLoads(tuple(replace(load, path=paths.get(module)) for module, load in self._loads.items()))

    def _loaded(
        self, result: Any, module: nn.Module, state_dict: Mapping[str, Any], strict: bool = True, *_: Any, **__: Any
    ) -> None:
        if strict:
            self._loads.pop(module, None)  # with success, or an exception would have been raised
            return
        # PyTorch's own account: a module may rename the keys of older files while it loads them.
        if not hasattr(result, "unexpected_keys") or (module not in self._loads and len(self._loads) >= _REMEMBERED):
            return
        unexpected, missing = set(result.unexpected_keys), [plain_path(name) for name in result.missing_keys]
        saved = [name for name, value in state_dict.items() if isinstance(value, Tensor)]
        left = [name for name in saved if name in unexpected]
        if saved:
            self._loads[module] = StateLoad(
                module=type(module).__name__,
                path=None,
                at=user_line(),
                tensors=len(saved),
                matched=len(saved) - len(left),
                missing=len(missing),
                names=(saved[0], missing[0]) if left and missing else None,
                renaming=renaming([plain_path(name) for name in left], missing),
            )
