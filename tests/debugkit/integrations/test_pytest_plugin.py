"""The assertions pass on a healthy policy and fail with findings a person can use; pytest runs are not made slower."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

from child_processes import run
from debugkit.integrations.pytest_plugin import assert_gradients_reach, assert_overfits, assert_silent

ROOT = Path(__file__).parents[3]
PLUGIN = "debugkit.integrations.pytest_plugin"


class Policy(nn.Module):
    """State (B, 3) → the squared error of the action (B, 2)."""

    def __init__(self, *, cut: bool = False, stuck: bool = False) -> None:
        super().__init__()
        self.vision, self.head = nn.Linear(3, 32), nn.Linear(32, 2)
        self.cut, self.stuck = cut, stuck

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> dict[str, torch.Tensor]:
        seen = torch.tanh(self.vision(state))
        if self.cut:
            seen = seen.detach()
        predicted = self.head(seen)
        if self.stuck:
            predicted = predicted.mean(dim=0, keepdim=True).expand_as(action)
        return {"loss": (predicted - action).square().mean()}


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"state": torch.randn(8, 3), "action": torch.randn(8, 2)}


def test_a_healthy_policy_passes_all_three(batch: dict[str, torch.Tensor]) -> None:
    model = Policy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert_silent(model, batch, select="DK1")
    assert_overfits(model, batch, learning_rate=3e-2)
    assert_gradients_reach(model, batch)
    assert_gradients_reach(model, batch, "vision.*", "head.bias")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_silence_is_broken_by_the_report(batch: dict[str, torch.Tensor]) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_silent(Policy(cut=True), batch)
    text = str(failed.value)
    assert text.startswith("debugkit is not silent on Policy.")
    assert "DK105  graph-cut" in text
    assert "seen = seen.detach()" in text


def test_silence_with_reasons(batch: dict[str, torch.Tensor]) -> None:
    assert_silent(Policy(cut=True), batch, select="DK1", ignore={"DK1": "the vision tower is trained elsewhere"})


def test_a_rule_that_could_not_be_examined_is_not_silence() -> None:
    with pytest.raises(AssertionError, match="could not examine what select= names"):
        assert_silent(Policy(), select="DK105")


def test_a_policy_that_cannot_learn_fails_with_its_suspects(batch: dict[str, torch.Tensor]) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_overfits(Policy(stuck=True), batch, steps=40)
    text = str(failed.value)
    assert "Policy does not overfit one batch: expected 0.1 of the initial loss, got 0." in text
    assert "learning rate too low" in text


def test_a_cut_is_named_with_the_parameters_behind_it(batch: dict[str, torch.Tensor]) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_gradients_reach(Policy(cut=True), batch, "vision.*")
    text = str(failed.value)
    assert text.startswith("The gradient reaches 0 of 2 parameters.")
    assert "vision.weight" in text
    assert "seen = seen.detach()" in text
    assert_gradients_reach(Policy(cut=True), batch, "head.*")


def test_a_frozen_parameter_that_was_asked_for_is_missed(batch: dict[str, torch.Tensor]) -> None:
    model = Policy()
    model.vision.weight.requires_grad_(False)
    assert_gradients_reach(model, batch)
    with pytest.raises(AssertionError, match="frozen"):
        assert_gradients_reach(model, batch, "vision.*")


def test_a_pattern_that_matches_nothing_does_not_pass(batch: dict[str, torch.Tensor]) -> None:
    with pytest.raises(AssertionError, match=r"No parameter's name matches 'vison\.\*'; they begin with vision, head"):
        assert_gradients_reach(Policy(), batch, "vison.*")


_TESTS = """
import sys
import torch

def loss_fn(model, batch):
    return model(batch).square().mean()

def test_nothing_is_imported_before_it_is_needed(request):
    assert request.config.pluginmanager.hasplugin({name!r})

def test_passes(assert_silent, assert_gradients_reach, assert_overfits):
    assert_silent(torch.nn.Linear(2, 1), torch.ones(3, 2), loss_fn, select="DK002")

def test_fails(assert_gradients_reach):
    assert_gradients_reach(torch.nn.Linear(2, 1), torch.ones(3, 2), "vision.*", loss_fn=loss_fn)
"""


def run_pytest(folder: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(p) for p in (path, ROOT) if p)}
    environment.pop("PYTEST_DISABLE_PLUGIN_AUTOLOAD", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest"]
    command += ["-p", "no:debugkit"]  # the one that this environment has installed
    return run([*command, "-W", "error", "-q", *arguments], cwd=folder, env=environment)


def test_installed_it_offers_its_fixtures_and_warnings_stay_errors(tmp_path: Path) -> None:
    """As pip would install it: the entry point that pyproject.toml declares, in a distribution of that name."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert declared == {"debugkit": PLUGIN}
    installed = tmp_path / "site" / "debugkit_for_this_test-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: debugkit-for-this-test\nVersion: 1\n")
    (installed / "RECORD").write_text("debugkit/__init__.py,,\ndebugkit/integrations/pytest_plugin.py,,\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\ndebugkit_here = {declared['debugkit']}\n")
    (tmp_path / "test_policy.py").write_text(_TESTS.format(name="debugkit_here"))

    done = run_pytest(tmp_path, "test_policy.py", path=tmp_path / "site")

    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "AssertionError: No parameter's name matches 'vision.*'; they begin with weight, bias." in done.stdout
    assert "pytest_plugin.py" not in done.stdout, "the traceback ends at the test's own line"


def test_with_autoload_off_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_policy.py").write_text(_TESTS.format(name=PLUGIN))
    done = run_pytest(tmp_path, "-p", PLUGIN, "test_policy.py", "-k", "passes")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_loading_the_plugin_imports_no_torch_and_next_to_nothing_of_debugkit() -> None:
    program = (
        f"import json, sys, pytest; before = set(sys.modules)\nimport {PLUGIN}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = run([sys.executable, "-c", program], check=True)
    loaded = set(json.loads(done.stdout))
    assert "torch" not in loaded
    assert {name for name in loaded if name.startswith("debugkit")} == {
        "debugkit",
        "debugkit.integrations",
        "debugkit.version",
        PLUGIN,
    }
