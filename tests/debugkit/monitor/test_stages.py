"""A script that trains one model after another: each is examined as thoroughly as the first one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from debugkit.finding import Finding
from debugkit.loop.pace import TINY_EVERY, TINY_FIRST, Pace
from debugkit.loop.stages import ENOUGH, Stages
from debugkit.report import Report
from debugkit.script import watch_script

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
decoder = nn.Linear(4, 4)

class Policy(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.trunk, self.head = encoder, nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, state):
        with torch.no_grad():
            feature = self.encoder(state)
        return self.head(torch.tanh(self.trunk(feature)))

def pretrain(steps=40):
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(steps):
        state = torch.randn(8, 4)
        loss = (decoder(encoder(state)) - state).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def train(steps=40):
    encoder.requires_grad_(False)
    policy = Policy(encoder)
    {load}
    optimizer = torch.optim.AdamW({held}, lr=1e-3)
    for _ in range(steps):
        state = torch.randn(8, 4)
        loss = (policy(state) - state[:, :2]).square().mean()
        {reset}
        loss.backward()
        optimizer.step()

pretrain()
train()
"""
HELD = "[p for p in policy.parameters() if p.requires_grad]"


def report_of(folder: Path, *, held: str = HELD, reset: str = "optimizer.zero_grad()", load: str = "pass") -> Report:
    script = folder / "two_stages.py"
    script.write_text(SCRIPT.format(held=held, reset=reset, load=load))
    result = watch_script(script)
    assert result.exit_code == 0
    return result.report


def loud(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity != "info"]


def test_the_model_of_the_second_stage_is_examined(tmp_path: Path) -> None:
    [finding] = loud(report_of(tmp_path, held="policy.head.parameters()"))
    assert finding.code == "DK101"
    assert finding.location.parameter == "Policy.trunk.weight"
    assert "`trunk.weight` and `trunk.bias`" in finding.message


def test_the_calls_of_both_models_are_repeated(tmp_path: Path) -> None:
    script = SCRIPT.replace("self.head(torch.tanh(self.trunk(feature)))", "self.head(self.mixed(feature))").replace(
        "    def forward(self, state):",
        "    def mixed(self, feature):\n"
        "        return torch.tanh(self.trunk(feature - feature.mean(0)))\n"
        "    def forward(self, state):",
    )
    script = script.replace("import torch\n", "import torch\nfrom torch.utils.data import DataLoader\n", 1).replace(
        "    for _ in range(steps):\n        state = torch.randn(8, 4)",
        "    loader = DataLoader(torch.randn(8 * steps, 4), batch_size=8)\n    for state in loader:",
    )
    (tmp_path / "train.py").write_text(
        script.format(held="policy.parameters()", reset="optimizer.zero_grad()", load="")
    )
    report = watch_script(tmp_path / "train.py").report
    [finding] = [finding for finding in report.findings if finding.code == "DK305"]
    assert finding.location.module == "Policy.trunk"


def test_two_correct_stages_are_left_alone(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    assert loud(report) == []
    assert {"DK101", "DK306"} <= set(report.examined)


def test_a_finding_has_one_path_before_and_after_its_stage_begins(tmp_path: Path) -> None:
    load = "policy.encoder.load_state_dict({f'encoder.{name}': w for name, w in encoder.state_dict().items()}, False)"
    [finding] = loud(report_of(tmp_path, load=load))
    assert (finding.code, finding.location.module) == ("DK118", "Policy.encoder")


VALUES = """
import torch
from torch import nn

torch.manual_seed(0)

class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    def forward(self, state):
        return self.network(state)

online, target = Values(), Values()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range(60):
    state = torch.randn(16, 4)
    action = target(state).argmax(1)
    with torch.no_grad():
        wanted = state[:, 0] + 0.9 * target(state + 0.1).amax(1)
    loss = (online(state).gather(1, action[:, None])[:, 0] - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        target.load_state_dict(online.state_dict())
"""


def test_what_was_seen_of_one_stage_is_no_finding_of_the_next(tmp_path: Path) -> None:
    """The target network is called first. When the trained one is examined, it is not given the other's parameters."""
    (tmp_path / "train.py").write_text(VALUES)
    report = watch_script(tmp_path / "train.py", experiments=False).report
    [finding] = report.findings
    assert (finding.code, finding.severity) == ("DK101", "info")
    assert (finding.location.module, finding.location.parameter) == ("network", "network.0.weight")


def test_a_clip_is_judged_by_the_stage_to_which_it_belongs(tmp_path: Path) -> None:
    clip = "optimizer.zero_grad(); nn.utils.clip_grad_norm_(policy.parameters(), 1.0)"
    [finding] = loud(report_of(tmp_path, reset=clip))
    assert (finding.code, finding.location.file) == ("DK504", str(tmp_path / "two_stages.py"))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_a_stage_begins_after_steps_that_move_only_another_model() -> None:
    actor, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    stages, of_actor, of_critic = Stages(actor), optimizer_of(actor), optimizer_of(critic)
    for _ in range(10):  # five steps of the critic for each of the actor are no stage
        assert not any(stages.stepped(of_critic, [actor, critic]) for _ in range(5))
        assert not stages.stepped(of_actor, [actor, critic])
    assert [stages.stepped(of_critic, [actor, critic]) for _ in range(ENOUGH)] == [*[False] * (ENOUGH - 1), True]
    assert stages.model is critic
    assert stages.optimizers == [of_critic]


def test_an_optimizer_of_several_models_belongs_to_the_one_that_is_examined() -> None:
    small, large = nn.Linear(2, 2), nn.Linear(64, 64)
    both = torch.optim.SGD([*small.parameters(), *large.parameters()], lr=0.1)
    stages = Stages(small)
    assert not any(stages.stepped(both, [small, large]) for _ in range(2 * ENOUGH))


def test_a_model_that_became_part_of_another_is_left_for_it() -> None:
    encoder = nn.Linear(2, 2)
    policy = nn.Sequential(encoder, nn.Linear(2, 1))
    stages, optimizer = Stages(encoder), optimizer_of(policy)
    assert any(stages.stepped(optimizer, [policy]) for _ in range(ENOUGH))
    assert stages.model is policy


def test_few_stages_are_examined() -> None:
    folds = [nn.Linear(2, 2) for _ in range(9)]
    stages = Stages(folds[0])
    begun = [any(stages.stepped(optimizer_of(fold), folds) for _ in range(ENOUGH)) for fold in folds[1:]]
    assert begun == [True] * 3 + [False] * 5


@pytest.mark.parametrize("every", [None, 2])
def test_the_first_steps_of_a_late_optimizer_of_a_tiny_model_are_examined(every: int | None) -> None:
    pace = Pace(every)
    pace.measure([nn.Linear(2, 2)])
    first, late = TINY_FIRST * (every or 1), 10 * TINY_EVERY
    assert not any(pace.looks_at(step) for step in range(first, first + TINY_EVERY) if step % TINY_EVERY)
    pace.begin_stage(1)  # too early to be a stage
    assert not pace.looks_at(late + 2)
    pace.begin_stage(late)
    assert all(pace.looks_at(step) == (step % (every or 1) == 0) for step in range(late, late + first))
    assert sum(pace.looks_at(step) for step in range(late + first, late + first + 2 * TINY_EVERY)) in (1, 2)
