"""check() survives any setup, examines each thing once, and says what it did not examine and why."""

from __future__ import annotations

import json
import math
import sys
from collections import UserDict, namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import debugkit
from debugkit import preflight
from debugkit.observation import Measurement, measurement_of
from debugkit.report import Report
from debugkit.report.not_examined import Cause, groups
from debugkit.rules.dk120_initial_scale.measure import InitialScaleProbe
from debugkit.rules.dk305_batch_leak import BatchIndependence
from debugkit.setup import SetupError

Pair = namedtuple("Pair", "x y")


def squared(model: nn.Module, batch: Any) -> torch.Tensor:
    return (model(batch["x"]) - batch["y"]).square().mean()


def crossed() -> dict[str, Any]:
    """A program that DK002 finds."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return {
        "model": model,
        "batch": {"x": torch.randn(4, 3), "y": torch.randn(4)},
        "loss_fn": squared,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


def why(report: Report, code: str) -> str:
    return next(entry.why for entry in report.not_examined if entry.code == code)


class HuggingFace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        prediction = self.head(x)
        return {"prediction": prediction} | ({} if y is None else {"loss": (prediction - y).square().mean()})


@pytest.mark.parametrize(
    "batch",
    [
        {"x": torch.ones(4, 3), "y": torch.ones(4, 2)},
        UserDict(x=torch.ones(4, 3), y=torch.ones(4, 2)),
    ],
)
def test_loss_of_hugging_faces_convention_is_the_default(batch: Any) -> None:
    report = debugkit.check(HuggingFace(), batch, select="DK002")
    assert report.failure is None
    assert report.examined == ("DK002",)


@pytest.mark.parametrize(
    ("batch", "of"),
    [
        (torch.ones(4, 3), lambda batch: batch),
        ((torch.ones(4, 3), None, "text"), lambda batch: batch[0]),
        (Pair(torch.ones(4, 3), torch.ones(4)), lambda batch: batch.x),
        ({"a": [{"b": torch.ones(4, 3)}]}, lambda batch: batch["a"][0]["b"]),
    ],
)
def test_any_nesting_of_the_batch_is_taken(batch: Any, of: Any) -> None:
    report = debugkit.check(nn.Linear(3, 1), batch, lambda m, b: m(of(b)).mean(), select="DK002")
    assert report.examined == ("DK002",)


def test_loss_that_pops_and_writes_in_place_does_not_touch_the_batch() -> None:
    def greedy(model: nn.Module, batch: Any) -> torch.Tensor:
        target = batch.pop("y")
        batch["x"].zero_()
        return (model(batch["x"]) - target).square().mean()

    batch = {"x": torch.ones(4, 3), "y": torch.ones(4, 2)}
    assert debugkit.check(nn.Linear(3, 2), batch, greedy).failure is None
    assert list(batch) == ["x", "y"]
    assert batch["x"].equal(torch.ones(4, 3))


def test_whole_check_leaves_a_training_run_bit_identical() -> None:
    def losses(examine: bool) -> list[float]:
        program = crossed()
        model, optimizer = program["model"], program["optimizer"]
        values = []
        for step in range(4):
            if examine and step == 2:
                debugkit.check(**program)
            optimizer.zero_grad()
            loss = squared(model, {"x": torch.randn(4, 3), "y": torch.randn(4)})
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        return values

    assert losses(examine=True) == losses(examine=False)


def test_model_that_raises_is_reported_and_not_raised() -> None:
    def broken(model: nn.Module, batch: Any) -> torch.Tensor:
        raise KeyError("action")

    report = debugkit.check(nn.Linear(3, 1), torch.ones(4, 3), broken)
    assert "KeyError: 'action'" in str(report.failure)
    assert f"{Path(__file__).name}:" in str(report.failure)
    assert not report.ok
    assert "KeyError" in why(report, "DK002")
    with pytest.raises(debugkit.DebugkitError, match="KeyError"):
        report.raise_for_errors()


@pytest.mark.parametrize(
    ("model", "batch", "loss_fn", "sentence"),
    [
        (nn.Linear(3, 1), torch.ones(4, 3), None, "pass loss_fn="),
        (HuggingFace(), {"x": torch.ones(4, 3)}, None, "without a loss"),
        (
            nn.Linear(3, 2),
            torch.ones(4, 3),
            lambda m, b: m(b),
            "must be a scalar tensor, but is a tensor of shape (4, 2)",
        ),
        (nn.Linear(3, 2), torch.ones(4, 3), lambda m, b: 1.0, "but is of type float"),
        (nn.Linear(3, 2).requires_grad_(False), torch.ones(4, 3), lambda m, b: m(b).mean(), "does not require grad"),
    ],
)
def test_step_that_cannot_run_says_what_to_do(model: nn.Module, batch: Any, loss_fn: Any, sentence: str) -> None:
    assert sentence in str(debugkit.check(model, batch, loss_fn).failure)


def test_without_a_batch_every_rule_that_needs_one_says_so() -> None:
    report = debugkit.check(nn.Linear(3, 1))
    assert report.failure is None
    assert "pass batch=" in why(report, "DK002")
    assert "pass batch=" in why(report, "DK305")


def test_batch_is_drawn_from_the_training_loader() -> None:
    loader = {"validation": [], "train": [crossed()["batch"]]}
    assert debugkit.check(nn.Linear(3, 1), loss_fn=squared, dataloader=loader, select="DK002").errors


@pytest.mark.parametrize("wrap", [torch.jit.script, torch.compile])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_and_compiled_models_are_examined(wrap: Any) -> None:
    program = crossed()
    select = ["DK002", "DK101", "DK305"]
    report = debugkit.check(wrap(program["model"]), program["batch"], squared, program["optimizer"], select=select)
    assert report.failure is None
    assert list(report.examined) == select


def test_callers_without_gradients_are_served_alike() -> None:
    with torch.no_grad():
        assert debugkit.check(**crossed(), select="DK002").errors


def test_every_measurement_runs_once_and_one_that_raises_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def failing(setup: object) -> object:
        calls.append(setup)
        raise RuntimeError("no luck")

    debugkit.check(**crossed(), select="DK305")
    own, load = measurement_of(BatchIndependence), Measurement.load
    monkeypatch.setattr(Measurement, "load", lambda one: failing if one is own else load(one))
    report = debugkit.check(**crossed(), select=["DK002", "DK305"])
    assert len(calls) == 1
    assert "raised RuntimeError: no luck" in why(report, "DK305")
    assert "DK002" in report.examined


def test_a_probe_that_raises_when_it_is_attached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(_: object) -> None:
        raise ValueError("cannot attach")

    monkeypatch.setattr(InitialScaleProbe, "__enter__", raises)
    report = debugkit.check(**crossed())
    assert "DK002" in report.by_code
    assert "cannot attach" in why(report, "DK120")


def test_a_check_in_the_middle_of_training_is_one() -> None:
    """The optimizer has its averages then, which some rules do not examine."""
    program = crossed()
    optimizer = torch.optim.Adam(program["model"].parameters())
    squared(program["model"], program["batch"]).backward()
    optimizer.step()
    report = debugkit.check(**(program | {"optimizer": optimizer}))
    assert report.failure is None
    assert "DK002" in report.by_code
    assert why(report, "DK120").startswith("The optimizer has a state")


def test_judge_that_raises_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = preflight.choose(preflight.all_rules(), ["DK002"])[0]
    broken = type(rule)(**{**vars(rule), "judge": lambda *_: 1 / 0})
    monkeypatch.setattr(preflight, "choose", lambda *_: (broken,))
    assert "ZeroDivisionError" in why(debugkit.check(**crossed()), "DK002")


def test_what_the_budget_does_not_allow_is_left_out_by_name() -> None:
    report = debugkit.check(**crossed(), select="DK305", budget=2)
    assert "budget of 2" in why(report, "DK305")
    both = debugkit.check(**crossed(), select=["DK105", "DK305"], budget=4)  # they cost four each
    assert both.examined == ("DK305",)
    assert "budget of 4" in why(both, "DK105")


def test_the_budget_is_spent_first_on_what_was_declared() -> None:
    one, other = "DK507", "DK305"  # they cost six and four
    declared = debugkit.check(**crossed(), select=[one, other], budget=6, declare=debugkit.Declare(accumulation=2))
    assert declared.examined == (one,)
    assert debugkit.check(**crossed(), select=[one, other], budget=6).examined == (other,)


def test_ignored_rules_carry_the_reason() -> None:
    report = debugkit.check(**crossed(), ignore={"DK00": "known, to be fixed next week"})
    assert not report.by_code.get("DK002")
    assert why(report, "DK002") == "Ignored: known, to be fixed next week"
    assert why(debugkit.check(**crossed(), ignore="DK002"), "DK002") == "Ignored by the caller."


def test_selecting_a_family_leaves_the_others_unmentioned() -> None:
    report = debugkit.check(**crossed(), select="DK0")
    assert all(code.startswith("DK0") for code in report.examined)
    assert all(entry.code.startswith("DK0") for entry in report.not_examined)


def test_findings_of_the_baseline_are_known_and_not_reported(tmp_path: Path) -> None:
    first = debugkit.check(**crossed(), select="DK002")
    first.save_json(tmp_path / "known.json")
    second = debugkit.check(**crossed(), select="DK002", baseline=tmp_path / "known.json")
    assert second.findings == ()
    assert [finding.code for finding in second.known] == ["DK002"]
    assert second.ok
    second.save_json(tmp_path / "renewed.json")
    assert debugkit.check(**crossed(), select="DK002", baseline=tmp_path / "renewed.json").ok


def test_a_clean_small_model_prints_in_ten_lines_and_nothing_in_debugkit_fails() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    batch = {"x": torch.randn(8, 4), "y": torch.randn(8, 2)}
    report = debugkit.check(model, batch, lambda m, b: (m(b["x"]) - b["y"]).square().mean())
    assert report.ok
    assert len(report.to_text(width=80).splitlines()) <= 10
    assert not any(group.cause is Cause.BUG for group in groups(report))


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"findings": [{}]})])
def test_baseline_that_is_none_is_refused_with_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "known.json").write_text(content)
    with pytest.raises(ValueError, match="not a debugkit report"):
        debugkit.check(**crossed(), select="DK002", baseline=tmp_path / "known.json")


def test_progress_is_reported_only_after_the_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(preflight, "_PATIENCE_S", math.inf)
    debugkit.check(**crossed(), select="DK305", progress=said.append)
    assert said == []
    monkeypatch.setattr(preflight, "_PATIENCE_S", -1.0)
    debugkit.check(**crossed(), select="DK305", progress=said.append)
    assert said == [
        "up to 1 measurement, 4 forward passes of the batch, about 0 s",
        "measurement 1 of 1: replace sample zero",
    ]


def test_progress_is_written_to_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(preflight, "_PATIENCE_S", -1.0)
    debugkit.check(**crossed(), select="DK305")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    debugkit.check(**crossed(), select="DK305")
    assert "measurement 1 of 1" in capsys.readouterr().err


def test_codes_may_be_given_in_one_string() -> None:
    both = debugkit.check(**crossed(), select="DK002, dk305", ignore="DK1,DK5")
    assert both.examined == debugkit.check(**crossed(), select=["DK002", "DK305"]).examined


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": 3}, "model must be a torch.nn.Module, but is of type int"),
        ({"model": nn.Linear(1, 1), "loss_fn": "mse"}, "loss_fn must be a function"),
        ({"model": nn.Linear(1, 1), "optimizer": 3}, "optimizer must be"),
        ({"model": nn.Linear(1, 1), "optimizer": ["adam"]}, "holds of type str"),
        ({"model": nn.Linear(1, 1), "declare": {"causal": True}}, "declare must be"),
    ],
)
def test_arguments_of_the_wrong_kind_are_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SetupError, match=sentence):
        debugkit.check(**arguments)
