"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PrinterCallback, Trainer, TrainerCallback

from labs.vla.dataset import Batch
from labs.vla.rollout import rollout

FRAMES, STEPS, BATCH_SIZE, HELD_OUT = 4800, 150, 64, 384

Samples = list[dict[str, Any]]


def collated(learner: Any, samples: Samples) -> dict[str, Tensor]:
    """The batch that `collate` makes of samples."""
    return dict(learner.policy.collate(samples))


def first_epoch(learner: Any, samples: Samples, seed: int, batch_size: int) -> dict[str, Any]:
    """The batches of the training loader in one epoch: their states (B, 3), and the loss of the untrained model.

    Also the sizes of the batches in which the same samples are evaluated.
    """
    model = learner.policy.build_model(seed)
    with _trainer(learner, model, samples, samples, seed, batch_size) as trainer, torch.no_grad():
        told: dict[str, Any] = {"is_trainer": isinstance(trainer, Trainer), "states": [], "losses": []}
        for batch in trainer.get_train_dataloader():
            told["states"].append(batch["state"].clone())
            told["losses"].append(trainer.compute_loss(model, dict(batch)))
        told["evaluated"] = [len(batch["state"]) for batch in trainer.get_eval_dataloader()]
        return told


def trained_on(learner: Any, samples: Samples, held_out: Samples, seed: int, steps: int) -> dict[str, Any]:
    """`train()` with all samples in every step: each step's loss, the weights, and the `eval_loss` of held-out samples.

    Also the Trainer's labels, whether the model's `forward` takes any keyword, and the samples' columns afterwards.
    """
    model = learner.policy.build_model(seed)
    size = max(len(samples), len(held_out))
    with _trainer(learner, model, samples, held_out, seed, size, steps) as trainer, _Losses(trainer) as losses:
        trainer.train()
        told = losses.all[:steps]
        evaluated = trainer.evaluate()
    return {
        "losses": told,
        "eval_loss": evaluated.get("eval_loss"),
        "weights": {name: weight.detach().clone() for name, weight in model.policy.named_parameters()},
        "labels": list(trainer.label_names),
        "any_keyword": any(one.kind is one.VAR_KEYWORD for one in inspect.signature(model.forward).parameters.values()),
        "columns": sorted({name for sample in (*samples, *held_out) for name in sample}),
    }


def logged_training(learner: Any, samples: Samples, seed: int, steps: int) -> dict[str, Any]:
    """`train()` for more steps: their rates, the optimizer's settings, when losses were logged, and the files written.

    `saved` are the files after the Trainer was asked to save the model.
    """
    model, rates = learner.policy.build_model(seed), _Rates()
    with _trainer(learner, model, samples, samples, seed, len(samples), steps) as trainer:
        folder = trainer.given_folder
        trainer.add_callback(rates)
        trainer.train()
        groups = trainer.optimizer.param_groups
        files = _files(folder)
        trainer.save_model()
        saved = _files(folder)
    return {
        "rates": rates.all,
        "optimizer": type(getattr(trainer.optimizer, "optimizer", trainer.optimizer)).__name__,  # accelerate wraps it
        "betas": [list(group["betas"]) for group in groups],
        "decays": sorted({group["weight_decay"] for group in groups}),
        "logged": {
            name: [line["step"] for line in trainer.state.log_history if name in line] for name in ("loss", "eval_loss")
        },
        "files": files,
        "saved": saved,
    }


def mixed(learner: Any, count: int, seed: int) -> Samples:
    """All samples of `mixture`."""
    samples = learner.policy.mixture(count, seed)
    return [dict(samples[index]) for index in range(len(samples))]


def parameters(learner: Any) -> dict[str, list[int]]:
    """The trained parameters' names, without the `policy.` in front, and shapes."""
    trained = {name: one for name, one in learner.policy.build_model(0).named_parameters() if one.requires_grad}
    return {name.removeprefix("policy."): list(one.shape) for name, one in trained.items()}


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a fresh model's policy predicts, (B, H, 3)."""
    return learner.policy.build_model(seed).policy.eval().predict(batch)


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Train on a mixture, and run closed-loop episodes."""
    model = learner.policy.build_model(seed)
    with _whole_training(learner, model, seed) as trainer:
        trainer.train()
    result = rollout(model.policy, episodes=episodes, first_seed=500_000 + seed)
    return {"success": torch.from_numpy(result.success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments, as `check_trainer` makes them from a Trainer."""
    model = learner.policy.build_model(0)
    with _trainer(learner, model, learner.policy.mixture(48, 96), learner.policy.mixture(24, 97), 96, 16) as trainer:
        loader = trainer.get_train_dataloader()

        def loss_fn(module: Any, batch: Batch) -> Any:
            return trainer.compute_loss(module, dict(batch))

        optimizer = trainer.create_optimizer()
    return {"model": model, "loss_fn": loss_fn, "optimizer": optimizer, "dataloader": {"train": loader}}


def symptom(learner: Any) -> None:
    """Train on a mixture and run the robot: what `lab run 96` shows."""
    model = learner.policy.build_model(96)
    print(f"Before training, 50 episodes: {_success(model)}\n")
    print("  step    loss   eval_loss")
    with _whole_training(learner, model, 96) as trainer:
        trainer.train()
    log: dict[int, dict[str, Any]] = {}
    for line in trainer.state.log_history:
        log.setdefault(line["step"], {}).update(line)
    for step, line in log.items():
        held_out = f"{line['eval_loss']:9.3f}" if "eval_loss" in line else ""
        print(f"  {step:4d}  {line['loss']:6.3f}   {held_out}".rstrip())
    print(f"\nAfter training, 50 episodes:  {_success(model)}")


def _success(model: Any) -> str:
    result = rollout(model.policy)
    return f"{result.success_rate:.0%} reach the named block, {result.wrong_block_rate:.0%} another one"


def _whole_training(learner: Any, model: Any, seed: int) -> Any:
    train, held_out = learner.policy.mixture(FRAMES, seed), learner.policy.mixture(HELD_OUT, seed + 1)
    return _trainer(learner, model, train, held_out, seed, BATCH_SIZE, STEPS)


@contextmanager
def _trainer(
    learner: Any,
    model: Any,
    train: Any,
    held_out: Any,
    seed: int,
    batch_size: int,
    steps: int = 1,
) -> Iterator[Any]:
    """The learner's Trainer, which prints nothing; `given_folder` is empty, and is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"steps": steps, "folder": Path(folder), "seed": seed, "batch_size": batch_size}
        trainer = learner.policy.build_trainer(model, train, held_out, **options)
        if isinstance(trainer, Trainer):
            trainer.remove_callback(PrinterCallback)
        trainer.given_folder = Path(folder)
        yield trainer


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


class _Rates(TrainerCallback):
    """Records the learning rate of each step."""

    def __init__(self) -> None:
        self.all: list[float] = []

    def on_pre_optimizer_step(self, *_: Any, **given: Any) -> None:
        self.all.append(float(given["optimizer"].param_groups[0]["lr"]))


class _Losses:
    """Records what a Trainer's `compute_loss` returns."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.all: list[Tensor] = []

    def __enter__(self) -> _Losses:
        compute = self.trainer.compute_loss

        def recorded(*args: Any, **options: Any) -> Any:
            result = compute(*args, **options)
            self.all.append((result[0] if isinstance(result, Sequence) else result).detach().clone())
            return result

        self.trainer.compute_loss = recorded
        return self

    def __exit__(self, *error: object) -> None:
        del self.trainer.compute_loss


def evaluated_on(learner: Any, samples: Samples, held_out: Samples, given: Samples, seed: int) -> list[Any]:
    """The `eval_loss` of an untrained model: `evaluate(given)`, then `evaluate()`, and `evaluate(given)` again."""
    model = learner.policy.build_model(seed)
    with _trainer(learner, model, samples, held_out, seed, batch_size=max(len(held_out), len(given))) as trainer:
        return [trainer.evaluate(*asked).get("eval_loss") for asked in ((given,), (), (given,))]
