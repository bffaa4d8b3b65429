"""Every rule against its fixtures: `dkNNN/fires.py` must be found, with its place; `dkNNN/silent.py` must not.

A fixture is a function without arguments that returns check()'s arguments as a dict: `model`, `batch`, `loss_fn`… More
keys may be there:

- `loop`: a function `loop(model, optimizer)` that trains; the fixture then runs under `debugkit.watch` and not `check`.
- `script`: alone, the text of a training script; the fixture then is run as by `debugkit run`.
- `config`: alone, check_config()'s arguments; the fixture then is a Hydra configuration, its files beside it.
- `raises`: the exception that ends the loop, if one does.
- `expect`: a dict of what must hold of the finding: `module`, `parameter`, `severity`, `message` (a part of it),
`count`;
  in a silent fixture, `not_examined`: a part of the reason why the rule was not examined.

In `fires.py` the lines that findings must name end in `# DKNNN` and no finding may name another line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import linecache
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import debugkit
from debugkit.finding import Finding
from debugkit.report import Report
from debugkit.script import watch_script
from debugkit.structure import tensors_in
from sampling import first_of_each, parameters
from shared_folder import shared_folder

EXTENDED_DEPENDS_ON = ("debugkit", "tests/rules")

HERE = Path(__file__).parent
Program = Callable[[], dict[str, Any]]
ORDINARY = 2


@pytest.fixture(scope="session")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lines that the findings of each program name: two tests need them, and it is examined once."""
    folder = shared_folder(tmp_path_factory, "named_lines")
    folder.mkdir(exist_ok=True)
    return folder


def programs(kind: str, folder: str = "dk[0-9][0-9][0-9]") -> list[Any]:
    """The programs of each rule; the ordinary suite runs the first `ORDINARY` of each."""
    found = [
        (path.parent.name, program)
        for path in sorted(HERE.glob(f"{folder}/{kind}.py"))
        for name, program in inspect.getmembers(load(path), inspect.isfunction)
        if program.__code__.co_filename == str(path) and not name.startswith("_") and name.islower()
    ]
    return parameters(
        found,
        first_of_each(found, lambda one: one[0], ORDINARY),
        name=lambda one: f"{one[0]}-{one[1].__name__}",
        values=lambda one: (one[0].upper(), one[1]),
    )


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fixture_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("code", "program"), list(programs("fires")))
def test_fault_is_found_at_its_place(code: str, program: Program, named: Path) -> None:
    report, expect = examine(code, program)
    remember(named, code, program, report)
    found = report.by_code.get(code, ())
    assert found, f"{code} is silent. Not examined: {report.not_examined}"
    for finding in found:
        assert_in_place(finding, expect)
        assert finding.evidence, "a finding without evidence cannot be checked by a person"
        assert_sentences(finding)
    assert len(found) == expect.get("count", 1), [finding.message for finding in found]


@pytest.mark.parametrize(("code", "program"), list(programs("silent")))
def test_healthy_code_is_left_alone(code: str, program: Program) -> None:
    report, expect = examine(code, program)
    assert not report.findings, [finding.message for finding in report.findings]
    if "not_examined" in expect:
        assert expect["not_examined"] in next(entry.why for entry in report.not_examined if entry.code == code)
    else:
        assert code in report.examined, f"silent for the wrong reason: {report.not_examined}"


@pytest.mark.extended
@pytest.mark.parametrize("path", sorted(HERE.glob("dk[0-9][0-9][0-9]/fires.py")), ids=lambda path: path.parent.name)
def test_every_marked_line_is_named(path: Path, named: Path) -> None:
    marked = {
        number
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith(marker(path.parent.name))
    }
    found: set[tuple[str, int]] = set()
    for one in programs("fires", path.parent.name):
        code, program = one.values
        record = named / f"{code}-{program.__name__}.json"
        if not record.exists():
            remember(named, code, program, examine(code, program)[0])
        found |= {(file, line) for file, line in json.loads(record.read_text(encoding="utf-8"))}
    assert {(str(path), number) for number in marked} <= found


def remember(named: Path, code: str, program: Program, report: Report) -> None:
    places = [(finding.location.file, finding.location.line) for finding in report.findings]
    written = named / f"{code}-{program.__name__}.{os.getpid()}"
    written.write_text(json.dumps(places), encoding="utf-8")
    written.replace(written.with_suffix(".json"))


def examine(code: str, program: Program) -> tuple[Report, dict[str, Any]]:
    """The report of one fixture; fails if an examination failed by itself, or changed anything."""
    torch.manual_seed(0)
    arguments = program()
    expect = arguments.pop("expect", {})
    loop = arguments.pop("loop", None)
    raises = arguments.pop("raises", None)
    config = arguments.pop("config", None)
    script = arguments.pop("script", None)
    if config is not None:
        from debugkit.integrations.hydra import check_config

        report = check_config(**config, select=code)
    elif script is not None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(script, encoding="utf-8")
            result = watch_script(Path(folder) / "train.py", select=code)
        assert result.exit_code == 0, result.error
        report = result.report
    elif loop is not None:
        model, optimizer = arguments["model"], arguments.get("optimizer")
        run = debugkit.watch(model, optimizer, on_finding="log", select=code)
        with pytest.raises(raises) if raises else contextlib.nullcontext(), run:
            loop(model, optimizer)
        report = run.report
    else:
        before = state(arguments)
        report = debugkit.check(**arguments, select=code)
        assert_same(before, state(arguments))
    for entry in report.not_examined:
        if "cannot hold a device made in Python" in entry.why:
            pytest.skip(entry.why)
        if entry.error is not None:
            raise entry.error
    return report, expect


def assert_sentences(finding: Finding) -> None:
    """Message and fix are sentences, in which the path of a module or a parameter is in backticks."""
    for text in (finding.message, finding.fix):
        words = re.sub(r"`[^`]*`", "", text)
        assert text[0] == "`" or not text[0].islower(), text
        assert text.endswith("."), text
        assert "`" not in words, f"a backtick is not closed: {text}"
        for path in (finding.location.module, finding.location.parameter):
            assert path is None or "." not in path or path not in words, f"{path} is not in backticks: {text}"


def assert_in_place(finding: Finding, expect: dict[str, Any]) -> None:
    place = finding.location
    for part in ("module", "parameter"):
        if part in expect:
            assert getattr(place, part) == expect[part]
    if "severity" in expect:
        assert str(finding.severity) == expect["severity"]
    if "message" in expect:
        assert expect["message"] in finding.message
    if place.file is not None and Path(place.file).is_relative_to(HERE):
        line = linecache.getline(place.file, place.line or 0).rstrip()
        assert line.endswith(marker(finding.code)), f"named line {place.line}, which is not marked: {line.strip()}"


def marker(code: str) -> str:
    return f"# {code.upper()}"


def state(arguments: dict[str, Any]) -> list[tuple[str, Any]]:
    """All that check() may not change: values, gradients, flags, hooks, optimizer state, batch and randomness."""
    model = arguments["model"]
    optimizers = arguments.get("optimizer") or []
    optimizers = optimizers if isinstance(optimizers, list | tuple) else [optimizers]
    values: list[tuple[str, Any]] = [
        *((name, tensor.detach().clone()) for name, tensor in tensors_in(dict(model.state_dict()))), *((f"{name}.grad",
        None if p.grad is None else p.grad.clone()) for name, p in model.named_parameters()), *((name,
        (module.training, len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks)))
          for name, module in model.named_modules()),
        *((f"batch.{path}", tensor.detach().clone()) for path, tensor in tensors_in(arguments.get("batch"))),
        ("randomness", torch.get_rng_state()),
    ]  # fmt: skip
    for optimizer in optimizers:
        values += [(f"optimizer.{path}", tensor.clone()) for path, tensor in tensors_in(dict(optimizer.state))]
    return values


def assert_same(before: list[tuple[str, Any]], after: list[tuple[str, Any]]) -> None:
    assert [name for name, _ in before] == [name for name, _ in after]
    for (name, old), (_, new) in zip(before, after, strict=True):
        if isinstance(old, torch.Tensor):
            assert isinstance(new, torch.Tensor), name
            assert (
                old.contiguous().view(torch.uint8).equal(new.contiguous().view(torch.uint8))
                if old.ndim
                else (old.equal(new))
            ), name
        else:
            assert old == new, name
