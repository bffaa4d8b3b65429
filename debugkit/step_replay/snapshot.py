"""Save a failed step: its batch, random states, model and optimizers, so that another process can repeat it.

A snapshot is a folder. `snapshot.json` describes what happened and how the parts belong together; a safetensors file
holds the values. The folder is written under a temporary name and then renamed, so it is never incomplete.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from debugkit.step_replay.calls import ModuleCall
from debugkit.step_replay.nonfinite import Nonfinite
from debugkit.step_replay.portable import NotPortable, Tensors, encode, importable, save_tensors
from debugkit.step_replay.replay import unwrapped

_log = logging.getLogger("debugkit")
_MOST_CALLS = 8  # the last ones of a step
FILE = "snapshot.json"


class Watched(Protocol):
    """The object that a snapshot is taken of."""

    step: int

    @property
    def roots(self) -> Iterable[tuple[str, nn.Module]]: ...
    @property
    def optimizers(self) -> Iterable[Optimizer]: ...
    @property
    def calls(self) -> list[ModuleCall]: ...


class SnapshotWriter:
    """Writes at most `limit` snapshots into `folder`; `written` are their paths."""

    def __init__(self, folder: Path, limit: int = 3) -> None:
        self.folder = folder
        self.limit = limit
        self.written: list[Path] = []

    def write(self, watched: Watched, why: Nonfinite | str) -> Path | None:
        """Save the current step and return its folder; None at the limit or after an error, which is only logged."""
        if len(self.written) >= self.limit:
            return None
        try:
            path = self._write(watched, why)
        except (OSError, NotPortable, RuntimeError) as error:
            _log.warning("No snapshot of step %d could be written to %s: %s", watched.step, self.folder, error)
            return None
        self.written.append(path)
        _log.warning("Step %d is saved in %s; run `debugkit replay %s`.", watched.step, path, path)
        return path

    def _write(self, watched: Watched, why: Nonfinite | str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.folder))
        try:
            tensors: Tensors = {}
            document = describe(watched, why, tensors)
            document["tensors"] = save_tensors(tensors, partial)
            (partial / FILE).write_text(json.dumps(document, indent=1), encoding="utf-8")
            return partial.rename(_free_name(self.folder, f"step{watched.step:06d}-{_label(why)}"))
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def describe(watched: Watched, why: Nonfinite | str, tensors: Tensors) -> dict[str, Any]:
    """The document of a snapshot, schema 1; its tensors go to `tensors`."""
    calls = watched.calls[-_MOST_CALLS:]
    return {
        "schema": 1,
        "torch": torch.__version__,
        "step": watched.step,
        "why": why if isinstance(why, str) else None,
        "nonfinite": None if isinstance(why, str) else why.to_json(),
        "models": [_model(path, unwrapped(model), tensors) for path, model in watched.roots],
        "optimizers": [_optimizer(optimizer, tensors) for optimizer in watched.optimizers],
        "calls": [_call(call, tensors) for call in calls],
    }


def _model(path: str, model: nn.Module, tensors: Tensors) -> dict[str, Any]:
    config = getattr(model, "config", None)
    described = None
    if callable(getattr(config, "to_dict", None)) and (name := importable(type(config))) is not None:
        with contextlib.suppress(TypeError, ValueError):  # not serialisable as JSON: replay then needs --build
            described = {"class": name, "values": json.loads(json.dumps(config.to_dict()))}  # type: ignore[union-attr]
    return {
        "path": path,
        "class": importable(type(model)),
        "config": described,
        "state": encode(dict(model.state_dict()), tensors),
    }


def _optimizer(optimizer: Optimizer, tensors: Tensors) -> dict[str, Any]:
    return {"class": type(optimizer).__name__, "state": encode(optimizer.state_dict(), tensors)}


def _call(call: ModuleCall, tensors: Tensors) -> dict[str, Any]:
    try:
        arguments = encode([call.args, call.kwargs], tensors)
        lost = None
    except NotPortable as limit:
        arguments, lost = None, f"an argument of type {limit} cannot be written to a file"
    randomness = call.randomness
    return {
        "path": call.path,
        "arguments": arguments,
        "lost": lost,
        "grad_enabled": call.grad_enabled,
        "autocast": encode({device: list(state) for device, state in call.autocast.items()}, tensors),
        "training": list(call.training),
        "buffers": encode(call.buffers, tensors),
        "output_gradients": encode(call.output_gradients, tensors),
        "randomness": encode(
            [randomness.python, _plain_numpy(randomness.numpy), randomness.torch, randomness.devices], tensors
        ),
    }


def _plain_numpy(state: tuple[Any, ...] | None) -> list[Any] | None:
    return None if state is None else [state[0], state[1].tolist(), *state[2:]]


def _label(why: Nonfinite | str) -> str:
    return "exception" if isinstance(why, str) else "dk201" if why.forward is not None else "dk202"


def _free_name(folder: Path, name: str) -> Path:
    number = 1
    while (path := folder / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path
