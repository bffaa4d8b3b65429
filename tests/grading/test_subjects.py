"""What a `subject()` may hold besides the arguments of `check()`: a configuration for the rules about Hydra, a loop."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from labs.grading.sandbox.child import _Child
from labs.grading.sandbox.diagnosis import diagnose


@pytest.fixture
def config(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "train").mkdir()
    (tmp_path / "config.yaml").write_text("defaults: [_self_, train: base]\ntrain: {batch_size: 64}\n")
    (tmp_path / "train" / "base.yaml").write_text("batch_size: 16\n")
    return {"config_dir": tmp_path, "directories": {"logs": "logs"}, "run_dir": "/runs/1"}


def test_a_configuration_alone_is_examined(config: dict[str, object]) -> None:
    report = diagnose({"config": config})
    assert {finding["code"] for finding in report["findings"]} == {"DK901", "DK904"}
    assert report["failure"] is None


def test_a_configuration_beside_a_model_adds_to_its_report(config: dict[str, object]) -> None:
    model = nn.Linear(4, 1)
    subject = {"model": model, "batch": torch.zeros(2, 4), "loss_fn": lambda model, batch: model(batch).square().mean()}
    report = diagnose({**subject, "config": config})
    assert {"DK901", "DK904"} <= {finding["code"] for finding in report["findings"]}
    assert {"DK105", "DK903"} <= set(report["examined"])
    assert not {"DK901", "DK903"} & {entry["code"] for entry in report["not_examined"]}


def test_the_exception_of_a_loop_is_a_failure_and_the_rules_see_it() -> None:
    """Some rules are judged when a loop raises, and only then."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop() -> None:
        loss = model(torch.ones(2, 4)).square().mean()
        torch.tensor(loss.item(), requires_grad=True).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)

    subject = {"model": model, "batch": torch.zeros(2, 4), "loss_fn": lambda model, batch: model(batch).square().mean()}
    report = diagnose({**subject, "optimizer": optimizer, "loop": loop})
    assert "DK119" in {finding["code"] for finding in report["findings"]}
    assert report["loop_raised"].startswith("RuntimeError: ")
    assert report["failure"] == f"The training loop raised {report['loop_raised']}."


def test_a_configuration_that_hydra_refuses_is_a_failure(config: dict[str, object]) -> None:
    assert (
        "Could not override 'train.typo'" in diagnose({"config": {**config, "overrides": ["train.typo=1"]}})["failure"]
    )


def test_a_place_in_a_configuration_is_the_learners_own_file(
    config: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "probe", raising=False)
    probe = tmp_path / "probe.py"
    probe.write_text("def subject(learner):\n    return {'config': {'config_dir': learner.config.parent}}\n")
    names = ("config.yaml", "train/base.yaml")
    child = _Child(tmp_path, probe, {name: f"/home/learner/{name}" for name in names})
    child.load_probe()
    child._load("")
    [finding] = child._diagnose("")["findings"]
    assert (finding["code"], finding["location"]["file"]) == ("DK901", "/home/learner/train/base.yaml")
