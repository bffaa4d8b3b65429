"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

import debugkit
from labs.lightning_processes import quiet
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy, PolicyConfig

BATCH_SIZE, STEPS = 16, 60


def step(learner: Any, batch: dict[str, Tensor], seed: int, horizon: int, action_dim: int) -> dict[str, Any]:
    """training_step without a trainer, in float32: its loss, and the normalised chunk that the head predicted.

    `to_cpu` is the number of tensors that it moved to the CPU by name.
    """
    module = learner.policy.MotionModule(
        Policy.from_base(PolicyConfig(horizon=horizon, action_dim=action_dim), seed=seed)
    )
    with quiet(), _Chunks(module) as seen, _Moves() as moves:
        loss = _call(module.training_step, batch)
    return {
        "loss": loss.detach(),
        "predicted": seen.chunks[0],
        "target": _target(module, batch),
        "is_pad": batch["action_is_pad"],
        "to_cpu": moves.to_cpu,
    }


def in_precision(learner: Any, batch: dict[str, Tensor], seed: int, precision: str) -> dict[str, Any]:
    """`Trainer(precision=…)`: one step of fit, and validate on another module that was never fitted.

    For each: what was raised, the loss, the chunk that the head predicted, and its target. `both` is the same for a
    module's fit after its validate. `alone` is what training_step raises without a trainer, in a module that was cast
    to float64.
    """
    with quiet():
        told = {
            name: _one_batch(learner.policy.build_module(seed), verbs, batch, precision)
            for name, verbs in (("fit", ["fit"]), ("validate", ["validate"]), ("both", ["validate", "fit"]))
        }
        module = learner.policy.build_module(seed).double()
        double = {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}
        return told | {"alone": _raised(lambda: _call(module.training_step, double))}


def _one_batch(module: Any, verbs: Sequence[str], batch: dict[str, Tensor], precision: str) -> dict[str, Any]:
    """The trainer's methods `verbs`, one after the other: what they raise, and the loss and chunk of the last one."""
    losses = _Losses()
    trainer = _trainer(max_steps=1, precision=precision, callbacks=[losses])

    def run() -> None:
        for verb in verbs:
            getattr(trainer, verb)(module, _ready([batch]))

    with _Chunks(module) as seen:
        raised = _raised(run)
    return {
        "raised": raised,
        "loss": losses.all[0] if losses.all else trainer.callback_metrics.get("validation_loss"),
        "predicted": seen.chunks[-1] if seen.chunks else None,
        "target": _target(module, batch) if raised is None else None,
    }


def fitted(learner: Any, steps: list[dict[str, Tensor]], seed: int) -> dict[str, Any]:
    """`Trainer.fit` on a few batches: each step's loss, the loss that was logged last, and the weights.

    `saved` are the names in the trained policy's state dict.
    """
    module, losses = learner.policy.build_module(seed), _Losses()
    with quiet():
        trainer = _trainer(max_epochs=1, callbacks=[losses])
        trainer.fit(module, _ready(steps))
    weights = {name: value.detach() for name, value in module.policy.named_parameters()}
    optimizer = trainer.optimizers[0]
    settings = {"type": type(optimizer).__name__}
    settings |= {name: optimizer.param_groups[0][name] for name in ("initial_lr", "betas", "weight_decay")}
    logged = trainer.callback_metrics.get("loss")
    saved = list(module.policy.state_dict())
    return {"losses": losses.all, "logged": logged, "weights": weights, "optimizer": settings, "saved": saved}


def second_device(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """A step on a second device, after one on the CPU: which tensors stayed on the CPU, and how far the step got.

    Grading uses no GPU, so the device is simulated: PyTorch's PrivateUse1, in a child process of this one.
    """
    with quiet():
        module = learner.policy.build_module(seed)
        _training_loss(module, batch)
        return asdict(debugkit.simulate_device(module, batch, _training_loss))


def held(learner: Any) -> dict[str, Any]:
    """The dtypes of the tensors that the module itself holds, as plain attributes and as buffers.

    `moved` are the plain attributes that the constructor made with `.to(…)`.
    """
    with _Moves() as moves:
        module = learner.policy.build_module(0)
    plain = {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}
    return {
        "plain": {name: str(value.dtype) for name, value in plain.items()},
        "moved": [name for name, value in plain.items() if any(value is one for one in moves.results)],
        "buffers": {name: str(value.dtype) for name, value in module.named_buffers(recurse=False)},
    }


def trainable(learner: Any) -> list[str]:
    """The names of the trainable parameters."""
    return [name for name, value in learner.policy.build_module(0).named_parameters() if value.requires_grad]


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built module predicts in evaluation mode, (B, H, 3)."""
    return _call(learner.policy.build_module(seed).eval().predict_step, batch)


def large_action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built module predicts after every weight of its head has grown five times."""
    module = learner.policy.build_module(seed).eval()
    with torch.no_grad():
        for weight in module.policy.head.parameters():
            weight *= 5
    return _call(module.predict_step, batch)


def trained(learner: Any, seed: int) -> dict[str, Any]:
    """fast_dev_run, then overfit one batch in double precision: the base policy's loss, before and after."""
    module, batch = learner.policy.build_module(seed), _batch(BATCH_SIZE, seed)
    before = _own_loss(module, batch)
    with quiet():
        fresh = learner.policy.build_module(seed)
        green = _raised(lambda: _trainer(fast_dev_run=True).fit(fresh, _ready([batch])))
        trainer = _trainer(overfit_batches=1, max_epochs=STEPS, precision="64-true")
        raised = _raised(lambda: trainer.fit(module, _ready([batch])))
    after = _own_loss(module, batch) if raised is None else None
    return {"fast_dev_run": green, "raised": raised, "before": before, "after": after}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a new module, its training step as the loss, and a batch of demonstrations."""
    module = learner.policy.build_module(0)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    return {"model": module, "batch": _batch(8, 91), "loss_fn": _training_loss, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Green on the laptop, then the same module in double precision and on a GPU: what `lab run 91` shows."""
    batch, losses = _batch(BATCH_SIZE, 91), _Losses()
    loader = _ready([batch])
    with quiet():
        print("Trainer(fast_dev_run=True).fit(module, loader)")
        trainer = _trainer(fast_dev_run=True)
        print(f"  {_raised(lambda: trainer.fit(learner.policy.build_module(91), loader)) or 'green'}\n")
        print(f"Trainer(overfit_batches=1, max_epochs={STEPS}).fit(module, loader)")
        _trainer(overfit_batches=1, max_epochs=STEPS, callbacks=[losses]).fit(learner.policy.build_module(91), loader)
        print(f"  loss {losses.all[0]:.3f} → {losses.all[-1]:.3f}: one batch, learnt by heart\n")
        print('Trainer(fast_dev_run=True, precision="64-true").fit(module, loader)')
        _show_failure(_trainer(fast_dev_run=True, precision="64-true"), learner.policy.build_module(91), loader)
        print("\nOne step on a second device (simulated)")
        seen = debugkit.simulate_device(learner.policy.build_module(91), batch, _training_loss)
    if seen.strays:
        print(f"  RuntimeError: {seen.strays[0].message}")
    else:
        print(f"  {seen.not_examined or 'forward and backward run'}")


def _show_failure(trainer: lightning.Trainer, module: Any, loader: Any) -> None:
    """Print what was raised, and which files the frames of the traceback belong to."""
    try:
        trainer.fit(module, loader)
    except Exception as error:
        frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        theirs = sum("/site-packages/" in name for name in frames)
        own = sum(name.endswith("policy.py") and "/site-packages/" not in name for name in frames)
        print(f"  {type(error).__name__}: {str(error).splitlines()[0]}")
        print(f"  {len(frames)} frames in the traceback: {theirs} in Lightning and PyTorch, {own} in policy.py")
    else:
        print("  green")


def _training_loss(module: Any, batch: dict[str, Tensor]) -> Tensor:
    """training_step on the device that debugkit simulates; sets the module's device as `module.to(device)` would."""
    module._device = batch["state"].device
    return _call(module.training_step, batch)


def _call(method: Any, batch: dict[str, Tensor]) -> Any:
    """Call a step as a trainer does: with the batch index if the step takes it."""
    return method(batch, 0) if len(inspect.signature(method).parameters) > 1 else method(batch)


def _trainer(**options: Any) -> lightning.Trainer:
    """Lightning's trainer on the CPU, without files and progress bars."""
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def _raised(act: Any) -> str | None:
    """The type and first line of what `act` raised, or None."""
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None


def _ready(prepared: list[dict[str, Tensor]]) -> DataLoader[dict[str, Tensor]]:
    """A loader of ready-made batches."""
    return DataLoader(prepared, batch_size=None)  # type: ignore[arg-type]  # a list is a data set


def _batch(size: int, seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(size, seed), size, steps=1, seed=seed))


def _target(module: Any, batch: dict[str, Tensor]) -> Tensor:
    return module.policy.action_statistics.normalize(batch["action"].to(module.policy.proprioception.weight.dtype))


def _own_loss(module: Any, batch: dict[str, Tensor]) -> float:
    """The base policy's loss in float32, whatever precision the module is in."""
    with torch.no_grad():
        return float(module.policy.float().eval()(**batch).loss)


class _Chunks:
    """Records the outputs of the policy's head, call by call."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.chunks: list[Tensor] = []

    def __enter__(self) -> _Chunks:
        self._handle = self.module.policy.head.register_forward_hook(
            lambda _module, _inputs, output: self.chunks.append(output.detach().clone())
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()


class _Moves(TorchFunctionMode):
    """Records the results of `.to(…)`, and how many tensors were moved to the CPU by name."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Tensor] = []
        self.to_cpu = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is Tensor.to:
            self.results.append(result)
        named = [given for given in (*args[1:], *(kwargs or {}).values()) if isinstance(given, str)]
        self.to_cpu += func is Tensor.cpu or (func is Tensor.to and "cpu" in named)
        return result


class _Losses(lightning.Callback):
    """The loss of each training step."""

    def __init__(self) -> None:
        self.all: list[Tensor] = []

    def on_train_batch_end(self, _trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        self.all.append(outputs["loss"].detach().clone())
