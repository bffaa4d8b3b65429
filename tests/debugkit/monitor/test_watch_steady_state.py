"""What watch() does in each step of a long run, once everything has been looked at for a while."""

from __future__ import annotations

from typing import Any, Self

import pytest
import torch
from torch import nn

import debugkit
from debugkit.gradient_norms import GradientNorms
from debugkit.loop.pace import TINY, TINY_EVERY, TINY_FIRST
from debugkit.loop.probe_runner import ProbeRunner
from debugkit.probe import FIRST_STEPS, SAMPLED_EVERY, SETTLING_STEPS, Probe
from debugkit.recorders.function_calls import FunctionCalls
from debugkit.recorders.guard import Guard
from debugkit.rules.dk205_gradient_spike.measure import GradientHistoryProbe
from debugkit.setup import TrainingSetup
from debugkit.watched_run import monitor_of

EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit")


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


def test_what_is_recorded_in_a_few_steps_is_recorded_in_those_that_are_looked_at() -> None:
    found = {}
    for every in (None, 10):
        model, optimizer = made()
        with debugkit.watch(model, optimizer, every=every, select="DK009", on_finding=lambda _finding: None) as run:
            for step in range(21):
                train_step(model, optimizer)
                if step == 19:  # after the step before the third one that is looked at
                    torch.ones(3).clamp(0, 1)
        found[every] = [finding.code for finding in run.report.findings]
    assert found == {None: [], 10: ["DK009"]}


def test_later_steps_hook_only_what_the_loop_calls_except_where_values_are_sampled() -> None:
    model, optimizer = made()
    hooked = []
    with debugkit.watch(model, optimizer, every=1):
        for _ in range(FIRST_STEPS + 2 * SAMPLED_EVERY):
            hooked.append(hooks_on(model.deepest) > 0)
            assert hooks_on(model) > 0
            train_step(model, optimizer)
    sampled = [step for step in range(SETTLING_STEPS, len(hooked)) if step % SAMPLED_EVERY == 0]
    assert [step for step, has in enumerate(hooked) if has] == [*range(SETTLING_STEPS), *sampled]


def test_gradients_are_followed_until_no_reset_was_found_for_a_while() -> None:
    model, optimizer = made()
    followed = []
    with debugkit.watch(model, optimizer, every=1, select="DK512") as run:
        for _ in range(FIRST_STEPS + 8):
            train_step(model, optimizer)
            followed.append(sum(len(parameter._backward_hooks or ()) for parameter in model.parameters()))
    assert followed[:FIRST_STEPS] == followed[:1] * FIRST_STEPS
    assert max(followed[FIRST_STEPS:]) < followed[0]
    assert run.report.examined == ("DK512",)


def test_the_model_is_hooked_for_its_memory_only_before_a_sample() -> None:
    model, optimizer = made()
    hooked = []
    with debugkit.watch(model, optimizer, select="DK602"):
        for step in range(2 * TINY_EVERY):  # samples of every step at first, later of one in four
            hooked += [hooks_on(model) > 0] if step > TINY_EVERY + 4 else []
            train_step(model, optimizer)
    assert 0.2 < sum(hooked) / len(hooked) < 0.3


def test_probes_of_functions_see_neither_the_optimizer_nor_what_the_tool_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    original = FunctionCalls.__torch_function__

    def counted(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append(getattr(func, "__name__", ""))
        return original(self, func, types, args, kwargs)

    monkeypatch.setattr(FunctionCalls, "__torch_function__", counted)
    model = Blocks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    with debugkit.watch(model, optimizer):
        train_step(model, optimizer)
        seen.clear()
        train_step(model, optimizer)
    assert "linear" in seen
    assert not {"aminmax", "lerp_", "addcdiv_"} & set(seen)
    assert len(seen) < 150


def losses_of(steps: int, every: int | None, width: int = 8) -> list[int]:
    """The steps whose loss was read."""
    model = nn.Linear(3, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with debugkit.watch(model, optimizer, every=every) as run:
        for _ in range(steps):
            train_step(model, optimizer)
    return [loss.step for loss in run.losses]


@pytest.mark.extended
def test_a_tiny_model_is_examined_in_fewer_steps_after_the_first_ones() -> None:
    later = [step for step in range(TINY_FIRST, 200) if step % TINY_EVERY == 0]
    assert losses_of(200, None) == [*range(TINY_FIRST), *later]
    assert losses_of(140, 1) == list(range(140))
    later = [step for step in range(3 * TINY_FIRST, 250) if step % TINY_EVERY == 0]
    assert losses_of(250, 3) == [*range(0, 3 * TINY_FIRST, 3), *later]
    assert losses_of(130, None, width=TINY) == list(range(130))


def test_a_tiny_model_is_examined_in_each_step_where_a_finding_is_raised() -> None:
    model, optimizer = made()
    with debugkit.watch(model, optimizer, on_finding="raise") as run:
        for _ in range(TINY_FIRST + 4):
            train_step(model, optimizer)
    assert len(run.losses) == TINY_FIRST + 4


def test_a_policy_that_moves_has_no_hooks_between_the_steps_that_are_examined() -> None:
    model, optimizer = made()

    def move() -> None:
        with torch.no_grad():
            for _ in range(20):
                model(torch.randn(1, 3))

    with debugkit.watch(model, optimizer):
        for step in range(TINY_FIRST + TINY_EVERY // 4):
            move()  # at the first call, the memory of the last step is sampled
            assert (sum(map(hooks_on, model.modules())) > 0) == (step < TINY_FIRST), step
            train_step(model, optimizer)
        move()
        model.eval()
        assert hooks_on(model) > 0  # validation is observed
        model.train()
        assert hooks_on(model) == 0


def test_most_of_many_evaluations_in_a_step_are_left_out() -> None:
    model, optimizer = made()
    with debugkit.watch(model, optimizer) as run:
        recorded = 0
        for _ in range(40):
            with torch.no_grad():
                model(torch.randn(1, 3))
            recorded += bool(monitor_of(run).running.call >= 0 and not monitor_of(run).running.unwatched)
        train_step(model, optimizer)
    assert recorded == 3 + 4  # and the 4th, 8th, 16th and 32nd


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


def test_the_memory_sample_of_a_step_is_taken_at_the_first_of_many_calls() -> None:
    """A loop of reinforcement learning calls its model dozens of times in a step: the others have no hook of DK602."""
    model, optimizer = made()
    before, after = [], []
    with debugkit.watch(model, optimizer, select="DK602") as run:
        monitored = hooks_on(model)
        for _ in range(20):
            before.append(hooks_on(model) - monitored)
            with torch.no_grad():
                for _ in range(3):
                    model(torch.randn(1, 3))
            after.append(hooks_on(model) - monitored)
            train_step(model, optimizer)
    assert before == [0] + [1] * 19
    assert after == [0] * 20
    assert "DK602" in run.report.examined
    assert hooks_on(model) == 0


def stages_in_which_it_is_attached(optimizers: int) -> list[int]:
    """The steps at whose end a probe of the first steps was attached; each optimizer makes ten."""
    model = nn.Linear(3, 2)
    ended: list[int] = []

    class First(Probe[int]):
        yields = int
        watch_steps = 3

        def end_step(self, step: int, /) -> None:
            ended.append(step)

    with debugkit.watch(model, None) as run:
        monitor = monitor_of(run)
        assert monitor.probes is not None
        monitor.probes._load_and_attach(lambda: First, Guard(), TrainingSetup.of(model))
        for _ in range(optimizers):
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            for _ in range(10):
                train_step(model, optimizer)
    return ended


def test_the_first_steps_of_a_later_optimizer_are_examined_too() -> None:
    """A student is trained after its teacher. A loop that makes an optimizer in each epoch costs no more than two."""
    assert stages_in_which_it_is_attached(1) == [0, 1, 2]
    assert stages_in_which_it_is_attached(2) == [0, 1, 2, 10, 11, 12]
    assert stages_in_which_it_is_attached(5) == [0, 1, 2, 10, 11, 12, 19, 20, 21]
