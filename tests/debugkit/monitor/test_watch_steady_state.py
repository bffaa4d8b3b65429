"""What watch() does in each step of a long run, once everything has been looked at for a while."""

from __future__ import annotations

from typing import Any, Self

import pytest
import torch
from torch import nn

import debugkit
from debugkit.gradient_norms import GradientNorms
from debugkit.loop.probe_runner import ProbeRunner
from debugkit.probe import FIRST_STEPS, SAMPLED_EVERY, Probe
from debugkit.rules.dk205_gradient_spike.measure import GradientHistoryProbe
from debugkit.setup import TrainingSetup


class Blocks(nn.Module):
    """Its first Linear is deep inside: no part of the model that a loop would call by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Sequential(nn.Linear(3, 8), nn.Tanh()))
        self.head = nn.Linear(8, 2)
        self.gain = 1.0

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(state) * self.gain)

    @property
    def deepest(self) -> nn.Module:
        return self.get_submodule("body.0.0")


class Attendance(Probe[int]):
    """Sampled, and notes the steps at whose end it was there."""

    yields = int
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self.ended: list[int] = []
        self.attached = 0

    def __enter__(self) -> Self:
        self.attached += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.attached -= 1

    def end_step(self, step: int, /) -> None:
        self.ended.append(step)

    @property
    def observation(self) -> int:
        return len(self.ended)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()


def made() -> tuple[Blocks, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Blocks()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def hooks_on(module: nn.Module) -> int:
    return len(module._forward_hooks) + len(module._forward_pre_hooks)


def test_no_hook_lies_on_a_module_in_steps_that_are_not_looked_at() -> None:
    model, optimizer = made()
    hooked = []
    with debugkit.watch(model, optimizer, every=10):
        for _ in range(21):
            hooked.append(hooks_on(model.deepest) > 0)
            train_step(model, optimizer)
    assert [step for step, has in enumerate(hooked) if has] == [0, 10, 20]
    assert hooks_on(model.deepest) == 0


def test_later_steps_carry_one_pair_of_hooks_except_where_probes_sample() -> None:
    model, optimizer = made()
    hooked = []
    with debugkit.watch(model, optimizer):
        for _ in range(FIRST_STEPS + 2 * SAMPLED_EVERY):
            hooked.append(hooks_on(model.deepest))
            train_step(model, optimizer)
    more = [step for step, count in enumerate(hooked) if count > 2]
    assert more == [*range(FIRST_STEPS), *(n for n in range(FIRST_STEPS, len(hooked)) if n % SAMPLED_EVERY == 0)]


@pytest.mark.parametrize("step", [3, FIRST_STEPS + 2], ids=["first-steps", "between-samples"])
def test_a_nan_is_placed_in_its_module_before_the_weights_change(step: int) -> None:
    model, optimizer = made()
    run = debugkit.watch(model, optimizer, on_finding="raise")

    def loop() -> None:
        with run:
            for number in range(step + 1):
                model.gain = torch.nan if number == step else 1.0
                train_step(model, optimizer)

    with pytest.raises(debugkit.DebugkitError) as raised:
        loop()
    assert run.steps == step
    finding = run.report.by_code["DK201"][0]
    assert "mul" in finding.message
    assert "DK201" in str(raised.value)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_a_sampled_probe_is_detached_between_its_samples_and_reports_what_it_saw_last() -> None:
    probes: list[Attendance] = []

    class Kept(Attendance):
        def __init__(self, setup: TrainingSetup) -> None:
            super().__init__(setup)
            probes.append(self)

    model, optimizer = made()
    runner = ProbeRunner({int: lambda: Kept}, TrainingSetup.of(model, optimizer=optimizer))
    for step in range(FIRST_STEPS + 2 * SAMPLED_EVERY):
        seen: dict[type, Any] = {}
        runner.end_step(step, seen, looked=True, will_look=True)
    sampled = [n for n in range(FIRST_STEPS, FIRST_STEPS + 2 * SAMPLED_EVERY) if n % SAMPLED_EVERY == 0]
    assert probes[0].ended == [*range(FIRST_STEPS), *sampled]
    seen = {}
    runner.recall(seen)
    assert seen == {int: FIRST_STEPS + len(sampled)}
    runner.close()
    assert probes[0].attached == 0


def test_norms_that_were_read_already_are_not_taken_again_and_are_the_same() -> None:
    model, optimizer = made()
    model(torch.randn(4, 3)).square().mean().backward()
    paths = {name: p.grad.norm().item() for name, p in model.named_parameters() if p.grad is not None}
    setup = TrainingSetup.of(model, optimizer=optimizer)
    measuring, given = GradientHistoryProbe(setup), GradientHistoryProbe(setup)
    given.gradient_norms_read(optimizer, GradientNorms(0, 0, tuple(paths.items())))
    for probe in (measuring, given):
        probe.before_optimizer_step(optimizer)
        probe.end_step(0)
    assert given._pending == []
    one, other = (probe.observation.optimizers[0] for probe in (measuring, given))
    assert len(one.last) == len(other.last) == 1
    assert other.last[0].norm == pytest.approx(one.last[0].norm, rel=1e-6)
    assert other.last[0].largest == one.last[0].largest
