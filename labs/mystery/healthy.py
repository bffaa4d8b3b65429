"""Runs a composed program, and the probe, in this process. Only our own code is run here, never a learner's."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from labs.grading.one_thread import one_thread
from labs.grading.rng import Rng
from labs.mystery.aspects import Aspect
from labs.mystery.compose import Program
from labs.mystery.inputs import Facts, random_state

PROBE, SYMPTOM = (Path(__file__).with_name(name) for name in ("probe.py", "symptom.py"))
_numbers = itertools.count()


def probe_text(program: Program, before: Mapping[str, str]) -> str:
    """The probe of one program: its names, and what the symptom showed in the healthy version."""
    names = {name: value for name, value in program.names.items() if name not in ("Task", "robot", "loss", "precision")}
    if program.forms["loop"] == "average":
        names["average"] = "average"
    rows = SYMPTOM.read_text(encoding="utf-8").partition(")\n\n")[2]
    text = PROBE.read_text(encoding="utf-8") + "\n\n" + rows
    text = text.replace("NAMES: dict[str, str] = {}", f"NAMES: dict[str, str] = {names!r}")
    return text.replace("BEFORE: dict[str, str] = {}", f"BEFORE: dict[str, str] = {dict(before)!r}")


class Running:
    """A program that was imported, with its probe."""

    def __init__(self, program: Program, files: Mapping[str, str] | None = None) -> None:
        self.program = program
        self._probe = _module("probe", probe_text(program, {}))
        self._learner = SimpleNamespace()
        for name, text in (files or program.files).items():
            setattr(self._learner, name.removesuffix(".py"), _module(name.removesuffix(".py"), text))

    def facts(self, rng: Rng) -> Facts:
        """What inputs depend on, with new random values of a checkpoint."""
        with _isolated():
            fresh = self._probe._fresh(self._learner).state_dict()
        names = self.program.names
        coarse = self.program.forms["precision"] != "float32"
        policy = self._learner.policy
        columns = signature(getattr(policy, names["tokenize"])).parameters["length"].default
        from_the_left = names["the_padding"] == "left"
        horizon, size = int(names["the_horizon"]), len(policy.VOCABULARY)
        return Facts(horizon, random_state(rng, fresh), names, coarse, size, columns, from_the_left)

    def measure(self, aspect: Aspect, inputs: Mapping[str, Any]) -> Any:
        """What the probe gives. Raises whatever the program raises."""
        with _isolated():
            return getattr(self._probe, aspect.id)(self._learner, **_copied(inputs))

    def summary(self) -> dict[str, str]:
        """The rows of the symptom."""
        with _isolated():
            rows: dict[str, str] = self._probe.summary(self._learner)[0]
        return rows


def _module(name: str, text: str) -> ModuleType:
    """Import a text under a name of its own, without a file; dataclasses look their module up."""
    module = ModuleType(f"composed_{next(_numbers)}_{name}")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, f"<{name}>", "exec", dont_inherit=True), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {name: _copied(one) for name, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """One thread, and the random state and the default dtype of before."""
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
