"""replay(): run the step of a snapshot again in another process and find the operation that made the NaN or Inf."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.finding import SourceLine
from debugkit.judging import judge
from debugkit.plain_data import short_line
from debugkit.randomness import Randomness
from debugkit.report import Report
from debugkit.rule import find_rule
from debugkit.step_replay.calls import ModuleCall
from debugkit.step_replay.nonfinite import Extremes, Frame, Nonfinite, NonfiniteOrigin
from debugkit.step_replay.portable import Tensors, decode, load_tensors
from debugkit.step_replay.replay import CannotReplay, trace_backward, trace_forward, unwrapped
from debugkit.step_replay.snapshot import FILE


class SnapshotError(ValueError):
    """The snapshot cannot be read, or its model cannot be built. The message says what to do."""


@dataclass(frozen=True)
class Replay:
    """The result of a replay. If the fault did not occur again, `reproduced` is False and `why` gives the reason."""

    step: int
    recorded: Nonfinite | None
    found: Nonfinite
    reproduced: bool
    why: str
    report: Report


def replay(snapshot: str | Path, build: str | None = None) -> Report:
    """Run the step of a snapshot again and report where it goes wrong; see `repeat`. Raises SnapshotError."""
    return repeat(snapshot, build).report


def repeat(snapshot: str | Path, build: str | None = None) -> Replay:
    """Run the calls of a snapshot again, operation by operation.

    `build` is `package.module:function`. The function takes no arguments and returns the model, `(model, batch)`, or a
    mapping with the key `model`. Without `build`, the recorded class is instantiated: from its configuration if it has
    one (as Hugging Face models do), otherwise without arguments. Raises SnapshotError.
    """
    folder = Path(snapshot)
    document = _read(folder)
    try:
        tensors = load_tensors(folder / document["tensors"])
        model = _load(document["models"], build, tensors)
        found, notes = _run(document, model, tensors)
        recorded = _nonfinite(document["nonfinite"])
        step = int(document["step"])
    except (KeyError, TypeError, IndexError) as error:
        raise SnapshotError(f"{folder} is damaged: {type(error).__name__} {error}. Take another snapshot.") from error
    reproduced = found.forward is not None or found.gradient is not None
    if not reproduced and not notes:
        outside = recorded is not None and (recorded.forward or recorded.gradient)
        place = outside.at if isinstance(outside, NonfiniteOrigin) else None
        notes = [
            f"the recorded operation is in the loop at {short_line(place)}, outside the model"
            if place is not None and isinstance(outside, NonfiniteOrigin) and outside.module is None
            else "every value of the repeated step is finite"
        ]
    shown = found if reproduced else recorded or found
    rules = [find_rule("DK201"), find_rule("DK202")]
    findings, examined, _ = judge(rules, {Nonfinite: shown}, {}, Declare(), mode="watch", step=step)
    why = "" if reproduced else "; ".join(dict.fromkeys(notes))
    title = f"step {step} of {folder.name}, " + ("reproduced" if reproduced else f"as recorded; not reproduced: {why}")
    report = Report(findings=tuple(findings), examined=tuple(examined), title=title)
    return Replay(step, recorded, found, reproduced, why, report)


def _read(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise SnapshotError(
            f"{folder} is not a snapshot: a folder with {FILE} was expected ({error.strerror})."
        ) from error
    except ValueError as error:
        raise SnapshotError(f"{folder / FILE} is damaged: {error}. Take another snapshot.") from error
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise SnapshotError(f"{folder} has a schema that this version of debugkit does not support; 1 was expected.")
    return document


def _load(models: list[dict[str, Any]], build: str | None, tensors: Tensors) -> nn.Module:
    """The model with the recorded parameters and buffers."""
    if not models:
        raise SnapshotError("The snapshot holds no model.")
    described = models[0]
    model = unwrapped(_from_function(build) if build is not None else _from_class(described))
    try:
        model.load_state_dict(decode(described["state"], tensors))
    except RuntimeError as error:
        raise SnapshotError(f"The model that was built is not the recorded one: {_one_line(error)}") from error
    return model


def _from_function(build: str) -> nn.Module:
    if not build.partition(":")[2]:
        raise SnapshotError(f"--build {build} names no function; write `package.module:function`.")
    function = _import(build, "--build")
    try:
        made = function()
    except Exception as error:
        raise SnapshotError(f"{build} did not return a model: {_one_line(error)}") from error
    model = made.get("model") if isinstance(made, Mapping) else made[0] if isinstance(made, tuple) else made
    if not isinstance(model, nn.Module):
        raise SnapshotError(f"{build} must return a model, (model, batch) or a mapping with it, but gave {type(made)}.")
    return model


def _from_class(described: dict[str, Any]) -> nn.Module:
    advice = "Pass build='package.module:function' (on the command line --build) that returns the model."
    if described["class"] is None:
        raise SnapshotError(f"The model's class is local to the recorded program. {advice}")
    cls = _import(described["class"], "the snapshot")
    try:
        if described["config"] is None:
            return cls()  # type: ignore[no-any-return]
        config = _import(described["config"]["class"], "the snapshot")
        return cls(config.from_dict(described["config"]["values"]))  # type: ignore[no-any-return]
    except Exception as error:
        raise SnapshotError(f"{described['class']} could not be built ({_one_line(error)}). {advice}") from error


def _import(name: str, source: str) -> Any:
    module, _, qualname = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # a console script does not have the working folder on its path
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the user's code
        raise SnapshotError(f"{source} names {name}, which cannot be imported here ({_one_line(error)}).") from error
    return found


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _run(document: dict[str, Any], model: nn.Module, tensors: Tensors) -> tuple[Nonfinite, list[str]]:
    """The first fault of the recorded calls, forward before backward, and the reasons why calls could not be run."""
    notes: list[str] = []
    calls = []
    for described in document["calls"]:
        if described["lost"] is not None:
            notes.append(described["lost"])
        else:
            calls.append(_call(described, model, tensors))
    for trace in (trace_forward, trace_backward):
        for call in calls:
            try:
                origin = trace(call)
            except CannotReplay as limit:
                notes.append(str(limit))
                continue
            if origin is not None and trace is trace_forward:
                return Nonfinite(origin, None), notes
            if origin is not None:
                return Nonfinite(None, origin), notes
    return Nonfinite(None, None), notes


def _call(described: dict[str, Any], model: nn.Module, tensors: Tensors) -> ModuleCall:
    args, kwargs = decode(described["arguments"], tensors)
    python, numpy, generator, devices = decode(described["randomness"], tensors)
    if numpy is not None:
        numpy = (numpy[0], importlib.import_module("numpy").array(numpy[1], dtype="uint32"), *numpy[2:])
    part = model.get_submodule(described["path"])
    here = {name: state for name, state in devices.items() if torch.cuda.is_available()}
    return ModuleCall(
        path=described["path"],
        module=part,
        args=args,
        kwargs=kwargs,
        randomness=Randomness(python, numpy, generator, here),
        grad_enabled=described["grad_enabled"],
        autocast={device: (on, dtype) for device, (on, dtype) in decode(described["autocast"], tensors).items()},
        training=tuple(described["training"]),
        buffers=decode(described["buffers"], tensors),
        output_gradients=decode(described["output_gradients"], tensors),
    )


def _nonfinite(recorded: dict[str, Any] | None) -> Nonfinite | None:
    return None if recorded is None else Nonfinite(_origin(recorded["forward"]), _origin(recorded["gradient"]))


def _origin(recorded: dict[str, Any] | None) -> NonfiniteOrigin | None:
    if recorded is None:
        return None
    frames = tuple(
        Frame(frame["module"], frame["class_name"], tuple(_extremes(tensor) for tensor in frame["tensors"]))
        for frame in recorded["frames"]
    )
    at = SourceLine(**recorded["at"]) if recorded["at"] else None
    return NonfiniteOrigin(**{**recorded, "frames": frames, "at": at, "parameters": tuple(recorded["parameters"])})


def _extremes(recorded: dict[str, Any]) -> Extremes:
    return Extremes(recorded["name"], float(recorded["minimum"]), float(recorded["maximum"]))
