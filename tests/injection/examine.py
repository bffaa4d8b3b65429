"""Run a program's text: what debugkit says of it, and what it does, so that a planted program can be compared."""

from __future__ import annotations

import contextlib
import gc
import linecache
import math
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import debugkit
from debugkit.finding import Finding, Severity
from debugkit.report import Report

FLOOR = 1e-5
"""Relative differences below this one are rounding."""
BYTES = 512
"""Differences of memory below this one are noise."""
_END = "    return history\n"


@dataclass
class Said:
    """What check() and watch() said of one program."""

    findings: list[Finding]
    check_failure: str
    watch_failure: str
    build_failure: str = ""
    """The exception that building the program raised; nothing was examined then."""


def load(text: str, path: Path) -> dict[str, Any]:
    """Run the program's text as a module, so that findings and tracebacks have its lines."""
    path.write_text(text, encoding="utf-8")
    linecache.checkcache(str(path))
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module.__dict__


def examine(text: str, path: Path) -> Said:
    """check() on a fresh build, then watch() over the loop of another."""
    with _quiet():
        try:
            built = load(text, path)
        except Exception as error:
            return Said([], "", "", f"{type(error).__name__}: {error}")
        checked = _check(built)
        built = load(text, path)
        run = debugkit.watch(built["model"], built["optimizer"], on_finding=_ignore, declare=built["declare"])
        with contextlib.suppress(Exception), run:  # an exception is in the report
            built["train"]()
    watched = run.report
    for report in (checked, watched):
        _raise_own_failure(report)
    return Said([*checked.findings, *watched.findings], checked.failure or "", watched.failure or "")


def _check(built: dict[str, Any]) -> Report:
    try:
        batch = next(iter(built["train_loader"]))
    except Exception as error:
        return Report((), (), (), f"{type(error).__name__}: {error}", "no batch")
    loaders = {"train": built["train_loader"], "validation": built["valid_loader"]}
    arguments = (built["model"], batch, built["compute_loss"], built["optimizer"])
    return debugkit.check(*arguments, dataloader=loaders, declare=built["declare"])


def _ignore(_finding: Finding) -> None:
    pass


def _raise_own_failure(report: Report) -> None:
    """A rule that fails is a bug of debugkit, and must not pass for silence."""
    for entry in report.not_examined:
        if entry.error is not None:
            raise RuntimeError(f"{entry.code}: {entry.why}") from entry.error


def loud(said: Said) -> list[Finding]:
    """The errors and warnings."""
    return [finding for finding in said.findings if finding.severity is not Severity.INFO]


def behaviour(text: str, path: Path) -> dict[str, Any]:
    """What a program does without debugkit: its gradients, losses, parameters, modes and memory, or what it raises."""
    with _quiet():
        sys.modules.pop(path.stem, None)  # the program before this one
        gc.collect()
        before, graphs = _alive()
        seen: dict[str, Any] = {}

        def at_the_end() -> None:  # while the locals of train() are alive
            gc.collect()
            kept, more = _alive()
            seen["bytes kept"], seen["graphs kept"] = kept - before, more - graphs

        try:
            built = load(text.replace(_END, f"    at_the_end()\n{_END}"), path)
            built["at_the_end"] = at_the_end
            recorded = _count_graphs(built)
            history = built["train"]()
        except Exception as error:
            return {"raised": f"{type(error).__name__}"}
        model = built["model"]
        seen["losses"] = [float(value) for name in ("train", "valid") for value in history[name]]
        seen["state"] = {name: _sum(tensor) for name, tensor in model.state_dict().items()}
        seen["names"] = sorted(name for name, _ in model.named_parameters())
        seen["gradients"] = {name: _sum(p.grad) for name, p in model.named_parameters() if p.grad is not None}
        seen["trainable"] = sorted(name for name, p in model.named_parameters() if p.requires_grad)
        if "average" in built:
            seen["average"] = {name: _sum(tensor) for name, tensor in built["average"].state_dict().items()}
        seen["served"] = _served(built)
        seen["graphs recorded"] = sum(recorded)
        return seen


def _served(built: dict[str, Any]) -> list[float]:
    """What the policy returns on a robot: two predictions in a row, and one after a reset."""
    model = built["model"]
    if not hasattr(model, "predict"):
        return []
    batch = built["valid_loader"].collate_fn([built["valid_data"][index] for index in range(4)])
    batch = {name: value.to(built["device"]) for name, value in batch.items()}
    model.eval()
    reset = getattr(model, "reset", lambda: None)
    values = [_sum(model.predict(batch)), _sum(model.predict(batch))]
    reset()
    return [*values, _sum(model.predict({name: value.flip(0) for name, value in batch.items()}))]


def differences(one: dict[str, Any], two: dict[str, Any]) -> list[str]:
    """The aspects in which two behaviours differ by more than rounding."""
    found = []
    for name in sorted({*one, *two}):
        first, second = one.get(name), two.get(name)
        if name.startswith("bytes") and isinstance(first, int) and isinstance(second, int):
            if abs(first - second) > BYTES:
                found.append(name)
        elif not _same(first, second):
            found.append(name)
    return found


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        if not math.isfinite(one) or not math.isfinite(two):
            return repr(one) == repr(two)
        return abs(one - two) <= FLOOR * max(abs(one), abs(two), 1e-3)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
    return bool(one == two)


def on_another_device(text: str, path: Path) -> str:
    """What the loss raises with the model on another device, which has shapes and no values; "" if nothing."""
    with _quiet():
        try:
            built = load(text, path)
            batch = next(iter(built["train_loader"]))
            built["device"] = torch.device("meta")
            built["model"].to("meta")
            if "target_network" in built:
                built["target_network"].to("meta")
            built["compute_loss"](built["model"], batch)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
    return ""


def _sum(tensor: torch.Tensor) -> float:
    """One number that almost any change of the tensor changes."""
    flat = tensor.detach().double().flatten()
    return float((flat * torch.linspace(1, 2, len(flat), dtype=torch.float64)).sum())


def _count_graphs(built: dict[str, Any]) -> list[bool]:
    """For each call of the loss from now on, whether it has a graph."""
    loss_fn, recorded = built["compute_loss"], []

    def compute_loss(model: Any, batch: Any) -> Any:
        loss = loss_fn(model, batch)
        recorded.append(loss.requires_grad)
        return loss

    built["compute_loss"] = compute_loss
    return recorded


def _alive() -> tuple[int, int]:
    """Bytes of all tensors alive, each storage once, and how many of the tensors have a graph."""
    sizes, graphs = {}, 0
    for thing in gc.get_objects():
        with contextlib.suppress(Exception):
            if isinstance(thing, torch.Tensor):
                storage = thing.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
                graphs += thing.grad_fn is not None
    return sum(sizes.values()), graphs


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
