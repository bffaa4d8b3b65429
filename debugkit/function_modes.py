"""Leaving a TorchFunctionMode that is not the innermost one, as when one recorder of several stops early."""

from __future__ import annotations

from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)


def leave(mode: TorchFunctionMode) -> None:
    """Take `mode` off torch's stack wherever it is, and leave the others in their order; nothing if it is not there.

    `mode.__exit__()` takes off whatever is on top, which may be someone else's.
    """
    if not any(entry is mode for entry in _get_current_function_mode_stack()):  # type: ignore[no-untyped-call]
        return
    above = []
    while (top := _pop_mode()) is not mode:  # type: ignore[no-untyped-call]
        above.append(top)
    for entry in reversed(above):
        _push_mode(entry)  # type: ignore[no-untyped-call]
