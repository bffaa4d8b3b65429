"""What makes watch() safe to leave on: results are bit-equal, and hooks and modes are as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import training_loops as loops
from torch import nn
from torch.optim import optimizer as optim_module

import debugkit
from debugkit.watched_run import monitor_of

OPTIMIZERS: dict[str, Callable[[nn.Module], list[torch.optim.Optimizer]]] = {
    "adamw": lambda model: [torch.optim.AdamW(model.parameters(), lr=1e-2)],
    "lbfgs": lambda model: [torch.optim.LBFGS(model.parameters(), lr=1e-2, max_iter=3)],
    "two": lambda model: [
        torch.optim.SGD(list(model.parameters())[:2], lr=1e-2),
        torch.optim.AdamW(list(model.parameters())[2:], lr=1e-2),
    ],
}
RUNS = [
    pytest.param(loops.Policy, loops.plain, "adamw", id="plain"),
    pytest.param(loops.Policy, loops.accumulating, "adamw", id="accumulation"),
    pytest.param(loops.Policy, loops.several_optimizers, "two", id="several-optimizers"),
    pytest.param(loops.Checkpointed, loops.mixed_precision, "adamw", id="amp"),
    pytest.param(loops.Policy, loops.with_closure, "lbfgs", id="lbfgs"),
    pytest.param(loops.Policy, loops.with_validation, "adamw", id="validation"),
    pytest.param(loops.Checkpointed, loops.plain, "adamw", id="checkpointing"),
    pytest.param(lambda: loops.Checkpointed(use_reentrant=True), loops.plain, "adamw", id="reentrant-checkpointing"),
]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(("build", "loop", "optimizers"), RUNS)
def test_losses_and_weights_are_bit_equal_with_and_without_watch(
    build: Callable[[], nn.Module], loop: loops.Loop, optimizers: str, every: int
) -> None:
    plain = train(build, loop, optimizers)
    watched = train(build, loop, optimizers, every=every)
    assert plain[0] == watched[0]
    assert all(a.equal(b) for a, b in zip(plain[1], watched[1], strict=True))
    assert torch.equal(plain[2], watched[2]), "the random state differs"
    assert not watched[3].findings, watched[3].findings


def train(
    build: Callable[[], nn.Module], loop: loops.Loop, optimizers: str, every: int | None = None
) -> tuple[list[float], list[torch.Tensor], torch.Tensor, debugkit.Report | None]:
    torch.manual_seed(0)
    model = build()
    made = OPTIMIZERS[optimizers](model)
    report = None
    if every is None:
        losses = loop(model, made)
    else:
        with debugkit.watch(model, made, select=["DK2", "DK5"], every=every) as run:
            losses = loop(model, made)
        report = run.report
    return losses, [value.clone() for value in model.state_dict().values()], torch.get_rng_state(), report


def traces_left(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Any]:
    """Everything in PyTorch that watch() touches, as it is now."""
    modules = torch.nn.modules.module
    patched = {
        "backward": torch.autograd.backward,
        "zero_grad": torch.optim.Optimizer.zero_grad,
        "clip": torch.nn.utils.clip_grad._clip_grads_with_norm_,
        "clip_value": torch.nn.utils.clip_grad_value_,
        "clip_value_home": torch.nn.utils.clip_grad.clip_grad_value_,
        "schedule": torch.optim.lr_scheduler.LRScheduler.__dict__["step"],
        "plateau": torch.optim.lr_scheduler.ReduceLROnPlateau.__dict__["step"],
        **{f"scaler.{name}": vars(torch.amp.GradScaler)[name] for name in ("scale", "unscale_", "step", "update")},
    }
    return {
        **patched,
        "module hooks": [
            (
                len(m._forward_hooks),
                len(m._forward_pre_hooks),
                len(m._backward_hooks),
                len(m._forward_hooks_with_kwargs),
            )
            for m in model.modules()
        ],
        "parameter hooks": [len(p._backward_hooks or ()) for p in model.parameters()],
        "optimizer hooks": [(len(o._optimizer_step_pre_hooks), len(o._optimizer_step_post_hooks)) for o in optimizers],
        "global optimizer hooks": (
            len(optim_module._global_optimizer_pre_hooks),
            len(optim_module._global_optimizer_post_hooks),
        ),
        "global module hooks": (len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)),
        "modes": torch._C._len_torch_function_stack(),
    }


def test_every_hook_is_gone_after_the_block(program: Any) -> None:
    model, optimizers = program
    before = traces_left(model, optimizers)
    with debugkit.watch(model, optimizers) as run:
        inside = traces_left(model, optimizers)
        loops.plain(model, optimizers)
    assert inside != before, "the comparison sees nothing"
    assert traces_left(model, optimizers) == before
    assert run.steps == 6


@pytest.mark.parametrize("where", ["forward", "between", "backward", "step"])
def test_every_hook_is_gone_after_an_exception(program: Any, where: str) -> None:
    model, optimizers = program
    before = traces_left(model, optimizers)

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    def loop() -> None:
        loops.plain(model, optimizers)
        if where == "forward":
            with model.head.register_forward_hook(fail):
                loops.plain(model, optimizers)
        output = model(torch.randn(4, 3))["action"].sum()
        if where == "between":
            fail()
        if where == "backward":
            output.register_hook(fail)
        output.backward()
        optimizers[0].register_step_pre_hook(fail)
        optimizers[0].step()

    with pytest.raises(RuntimeError, match="planted"), debugkit.watch(model, optimizers):
        loop()
    optimizers[0]._optimizer_step_pre_hooks.clear()
    assert traces_left(model, optimizers) == before


def test_a_loop_that_catches_its_own_exception_is_watched_on(program: Any) -> None:
    model, optimizers = program

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with debugkit.watch(model, optimizers) as run:
        with model.head.register_forward_pre_hook(fail), pytest.raises(RuntimeError):
            model(torch.randn(4, 3))
        losses = loops.plain(model, optimizers)
        assert [loss.value for loss in run.losses] == pytest.approx(losses)
        assert not monitor_of(run).running.modules


def test_a_mode_that_the_loop_is_inside_of_survives() -> None:
    """`torch.device` is a mode on the same stack as debugkit's own, entered and left at other times."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer, select="DK2"):
        with torch.device("meta"):
            output = model(torch.randn(4, 3, device="cpu"))
            assert torch.zeros(1).device.type == "meta"
        assert torch.zeros(1).device.type == "cpu"
        with torch.device("meta"):
            loss = output.square().mean()
        loss.backward()
        optimizer.step()
        assert torch._C._len_torch_function_stack() == 0


def test_a_default_device_can_be_set_and_reset_inside_the_loop() -> None:
    model = nn.Linear(3, 2)
    try:
        torch.set_default_device("cpu")
        with debugkit.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), select="DK2"):
            output = model(torch.randn(4, 3))
            torch.set_default_device(None)
            torch.set_default_device("cpu")
            output.sum().backward()
    finally:
        torch.set_default_device(None)
        del torch._GLOBAL_DEVICE_CONTEXT.device_context  # torch 2.6 cannot name the default device where this is None
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": "policy"}, "model must be a torch.nn.Module"),
        ({"optimizer": 3}, "optimizer must be an optimizer"),
        ({"on_finding": "print"}, 'on_finding must be "log", "raise" or a function'),
        ({"every": 0}, "every must be a number of steps"),
        ({"select": "DK99999"}, "No rule's code starts with"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        debugkit.watch(**{"model": nn.Linear(1, 1), **arguments})


def test_a_failure_of_the_tool_itself_is_a_warning_and_not_the_loops(
    program: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizers = program

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("debugkit.loop.step_reader.forward_origin", fail)
    with debugkit.watch(model, optimizers, select="DK2") as run:
        assert len(loops.plain(model, optimizers)) == 6
        assert "planted" in monitor_of(run).failed
    assert [record.getMessage() for record in caplog.records].count(
        "Observing step 0 raised RuntimeError: planted. The loop continues."
    ) == 1
    assert torch._C._len_torch_function_stack() == 0


def test_outputs_without_a_range_are_passed_over() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> tuple[object, ...]:
            out = self.head(x)
            return (
                out,
                out[:0],
                out > 0,
                out.detach().to(torch.float8_e4m3fn),
                out.detach().to_sparse(),
                None,
                "text",
                3,
            )

    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer, on_finding="raise", select="DK2") as run:
        model(torch.randn(4, 3))[0].sum().backward()
        optimizer.step()
    assert "DK201" in run.report.examined
