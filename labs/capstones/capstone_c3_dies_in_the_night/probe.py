"""What the grader and `lab run` measure. Runs with the learner's project, in the sandboxed child.

Counts tensors, the bytes of their storages, autograd nodes and hooks, never the memory of the process. A node of the
cluster is simulated by a limit on the bytes of live storages.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import yaml
from torch import nn
from torch.nn.modules import module as hooks_of_all

from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.live_tensors import bytes_of, counting_from_here, graph_nodes, live_tensors
from labs.reference_training import with_dropout
from labs.vla.dataset import Batch
from labs.vla.randomness import private_randomness

MEGABYTE = 1e6
NODES = {"node-07": 80, "node-12": 112, "node-03": 96}
"""The memory of three nodes of the cluster, in MB."""
ENDED_AFTER, COMPARED_TO = 130, 140


class EndedError(Exception):
    """The cluster ended the job."""


def alive(learner: Any, config: dict[str, Any]) -> dict[str, list[int]]:
    """What is alive after each step of a run: autograd nodes, tensors, and bytes of tensors."""
    counts: dict[str, list[int]] = {"autograd nodes": [], "tensors": [], "bytes of tensors": []}

    def look(_step: int, _loss: float) -> None:
        tensors = live_tensors()
        for what, count in zip(counts, (graph_nodes(tensors), len(tensors), bytes_of(tensors)), strict=True):
            counts[what].append(count)

    with _folder() as folder, counting_from_here():
        learner.train.train(config, folder, look)
    return counts


def left_by_validation(learner: Any, batches: list[Batch], watched: list[str], seed: int) -> dict[str, Any]:
    """What two validations leave behind, in a policy whose projector has a hook of its own.

    `alive`: tensors and their bytes before the validations, after them, and after each of three passes that follow.
    `hooks`: by module, the hooks before, after one validation, after two, and after one that raised in its last batch.
    """
    policy = with_dropout(learner.model.build_policy(seed, 0.1)).train()
    hooks = [_hooks(policy)]
    with counting_from_here():
        counts = [_tensors_and_bytes()]
        for _ in range(2):
            learner.evaluate.validate(policy, batches, watched)
            hooks.append(_hooks(policy))
        counts.append(_tensors_and_bytes())
        for batch in batches[:3]:
            policy(**batch)
            counts.append(_tensors_and_bytes())
    with suppress(KeyError):
        learner.evaluate.validate(policy, [*batches, {}], watched)
    hooks.append(_hooks(policy))
    return {"alive": counts, "hooks": hooks}


def validation(learner: Any, batches: list[Batch], watched: list[str], seed: int) -> dict[str, Any]:
    """The numbers of a validation of a policy in training mode with its vision tower in evaluation mode.

    Also whether the modes, the random state and the weights are as before, and whether gradients are still recorded.
    """
    policy = learner.model.build_policy(seed, 0.3).train()
    policy.vision.eval()
    modes = [module.training for module in policy.modules()]
    weights = {name: value.clone() for name, value in policy.state_dict().items()}
    with private_randomness(seed):
        state = torch.get_rng_state()
        found = learner.evaluate.validate(policy, batches, watched)
        random_is_kept = torch.equal(state, torch.get_rng_state())
    return {
        "loss": found.loss,
        "spread": dict(found.spread),
        "modes": modes == [module.training for module in policy.modules()],
        "random": random_is_kept,
        "weights": all(torch.equal(weights[name], value) for name, value in policy.state_dict().items()),
        "gradients": torch.is_grad_enabled() and all(one.requires_grad for one in policy.parameters()),
    }


def run(learner: Any, config: dict[str, Any], ended_after: list[int] | None = None) -> dict[str, Any]:
    """A run of the job, ended after these steps and started again in the same folder each time.

    Returns `resumed_at` of each start, and of the steps that count, by step: `losses` and `validations`; the weights
    at the end, the names of the checkpoints, and whether the caller's random state is as before.
    """
    starts, losses, validations = [], {}, {}
    with _folder() as folder, private_randomness(7):
        state = torch.get_rng_state()
        for end in [*(ended_after or []), None]:
            shown: dict[int, float] = {}
            try:
                done = learner.train.train(config, folder, _until(end, shown))
            except EndedError:
                starts.append(-1)
            else:
                starts.append(done.resumed_at)
                validations |= {step: (one.loss, dict(one.spread)) for step, one in done.validations.items()}
            losses |= shown
        names = sorted(path.name for path in folder.iterdir())
        random_is_kept = torch.equal(state, torch.get_rng_state())
    return {
        "resumed_at": starts[-1],
        "losses": [losses[step] for step in sorted(losses)],
        "steps": sorted(losses),
        "validations": validations,
        "weights": {name: value.detach() for name, value in done.policy.named_parameters()},
        "files": names,
        "random": random_is_kept,
        "training": done.policy.training,
    }


def continued(learner: Any, config: dict[str, Any], ended_after: int) -> dict[str, Any]:
    """A run that continues a checkpoint with the keys of an earlier release: its losses, or the error's type."""
    with _folder() as folder:
        with suppress(EndedError):
            learner.train.train(config, folder, _until(ended_after, {}))
        for path in folder.glob("step_*.pt"):
            saved = torch.load(path, weights_only=True)
            saved["sampler"] = {name: saved["sampler"][name] for name in ("epoch", "position", "table")}
            torch.save({name: saved[name] for name in ("step", "random", "policy", "optimizer", "sampler")}, path)
        losses: dict[int, float] = {}
        try:
            learner.train.train(config, folder, _until(None, losses))
        except Exception as error:  # the check decides what it means
            return {"losses": [], "raised": type(error).__name__}
    return {"losses": [losses[step] for step in sorted(losses)], "raised": None}


def settings(learner: Any) -> dict[str, Any]:
    """The settings of config.yaml."""
    return yaml.safe_load(learner.config.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a policy, and a short run of the job in place of its training loop."""
    config = settings(learner) | {"steps": 12, "batch_size": 4, "frames": 60, "held_out": 8, "validate_every": 6}
    policy = learner.model.build_policy(0, 0.1)

    def loop() -> None:
        with _folder() as folder, patch.object(learner.train, "build_policy", lambda *_: policy):
            learner.train.train(config, folder)

    return {"model": policy, "loop": loop}


def symptom(learner: Any) -> None:
    """The job on a node of the cluster, and started again on another one: what `lab run c3` shows."""
    config = settings(learner)
    node, memory = next(iter(NODES.items()))
    with _folder() as folder:
        survived, losses = job_on_a_node(learner.train, config, folder, memory, to=COMPARED_TO, name=node)
        if not survived:
            return
        print(f"\nThe same job, ended by the cluster after step {ENDED_AFTER}, and started again on another node")
        with _folder() as other:
            for path in folder.glob("step_*.pt"):
                if int(path.stem.removeprefix("step_")) <= ENDED_AFTER:
                    shutil.copy(path, other)
            again: dict[int, float] = {}
            with suppress(EndedError):
                learner.train.train(config, other, _until(COMPARED_TO, again))
        first = min(again) - 1
        print(f"  resumed from the checkpoint of step {first}" if first else "  no checkpoint: from the beginning")
        print("\n  step   loss, not ended   loss, ended and resumed")
        for step in [one for one in sorted(again) if one == first + 1 or one % 5 == 0]:
            print(f"  {step:4d}   {losses[step]:15.4f}   {again[step]:23.4f}")


def job_on_a_node(
    train: Any, config: dict[str, Any], folder: Path, memory: int, to: int, name: str
) -> tuple[bool, dict[int, float]]:
    """Run the job with a limit on the MB of live tensors, and print its log; whether it reached step `to`, and losses.

    `train` is the module train.py.
    """
    losses: dict[int, float] = {}
    print(f"{name}: {memory} MB for tensors, {config['steps']} steps, checkpoints every {config['save_every']}\n")
    print("  step    loss   live tensors, MB", flush=True)
    with StorageCounter() as counter:

        def watch(step: int, loss: float) -> None:
            losses[step] = loss
            live = counter.live / MEGABYTE
            ended = live > memory
            if step == 1 or step % 10 == 0 or ended:
                print(f"  {step:4d}  {loss:6.4f}   {live:16.1f}", flush=True)
            if step % config["validate_every"] == 0 and not ended:
                print(f"  {step:4d}  validated", flush=True)
            if step % config["save_every"] == 0 and not ended:
                print(f"  {step:4d}  checkpoint written", flush=True)
            if ended or step == to:
                raise EndedError

        with suppress(EndedError):
            train.train(config, folder, watch)
        survived = max(losses) == to
    if not survived:
        print(f"\nKilled after step {max(losses)}: more than {memory} MB. Checkpoints: {_listed(folder)}.")
    return survived, losses


def _listed(folder: Path) -> str:
    return ", ".join(sorted(path.name for path in folder.glob("step_*.pt"))) or "none"


def _until(end: int | None, losses: dict[int, float]) -> Callable[[int, float], None]:
    """Notes the losses, and ends the job after step `end`."""

    def note(step: int, loss: float) -> None:
        losses[step] = loss
        if step == end:
            raise EndedError

    return note


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _tensors_and_bytes() -> list[int]:
    tensors = live_tensors()
    return [len(tensors), bytes_of(tensors)]


def _hooks(policy: nn.Module) -> dict[str, int]:
    """The number of hooks of each module that has some; those of all modules under the name `every module`."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    found = {
        name or "the policy": sum(len(getattr(module, kind)) for kind in kinds)
        for name, module in policy.named_modules()
    }
    found["every module"] = sum(len(getattr(hooks_of_all, f"_global{kind}")) for kind in kinds)
    return {name: count for name, count in found.items() if count}
