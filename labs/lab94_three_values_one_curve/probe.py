"""What the grader and `lab run` measure. Runs with the learner's program, in the sandboxed child."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from debugkit.integrations.hydra import track_reads
from labs.vla.dataset import batches, demonstrations
from labs.vla.heads import FlowMatchingHead
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness

QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")
SWEEP = (4, 16, 64)
FRAMES, DRAWS, HELD_OUT = 256, 32, 94_000


@dataclass
class Run:
    """What one run of `main` did."""

    raised: str | None = None
    """The kind of error that ended it."""
    message: str = ""
    updates: int = 0
    """The optimizer's steps."""
    noisy: int = 0
    """The noisy chunks for which the head computed a velocity while gradients were recorded."""
    encoded: int = 0
    """The frames that were encoded while gradients were recorded."""
    given: dict[str, Any] | None = None
    """The configuration that `train` received."""
    after: dict[str, Any] | None = None
    """The same configuration when `train` was done."""
    filed: dict[str, Any] | None = None
    """The configuration that Hydra saved."""
    losses: list[float] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    action: Tensor | None = None
    """What the trained policy predicts for a batch, for one noise."""
    velocities: int = 0
    """The number of times that the head ran for this prediction."""


def run(
    learner: Any,
    overrides: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    config_name: str = "config",
    batch: dict[str, Tensor] | None = None,
) -> dict[str, Any]:
    """One run of `main` with these overrides; `files` of conf/ are replaced or added.

    With a `batch`, also the held-out loss that `main` prints, and the prediction of the trained policy.
    """
    seen, policy = _observed(learner, overrides, files, config_name, evaluated=batch is not None)
    if batch is not None and policy is not None:
        with _counted() as count:
            seen.action = _predicted(policy, batch)
        seen.velocities = count["head"]
    return {one.name: getattr(seen, one.name) for one in fields(Run) if one.name != "message"}


def composed(
    learner: Any, overrides: Sequence[str] = (), files: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """The configuration that `main` passes to `train`; `files` of conf/ are replaced or added."""
    return OmegaConf.to_container(_configuration(learner, overrides, files), resolve=True)  # type: ignore[return-value]


def held_out_loss(learner: Any, seed: int) -> float:
    """The velocity's error of a policy that was trained with the project's settings, on frames of no run."""
    seen, policy = _observed(learner, [f"seed={seed}"], evaluated=False)
    if policy is None:
        raise RuntimeError(f"The run ended with {seen.raised}: {seen.message}")
    policy.head.draws = DRAWS
    batch = next(batches(demonstrations(FRAMES, seed=HELD_OUT), FRAMES, steps=1, seed=0))
    with private_randomness(HELD_OUT), torch.no_grad():
        return float(policy(**batch).loss)


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy of this configuration predicts, (B, H, 3), for one noise."""
    return _predicted(learner.train.build_policy(_configuration(learner, [f"seed={seed}"])), batch)


def subject(learner: Any) -> dict[str, Any]:
    """check_config()'s arguments: the configuration, tracked during a run of two updates."""
    overrides = ["train.steps=2"]
    tracked: list[DictConfig] = []
    train = learner.train.train

    def tracking(cfg: DictConfig) -> Any:
        tracked.append(track_reads(cfg))
        return train(tracked[0])

    with patch.object(learner.train, "train", tracking):
        _observed(learner, overrides)
    return {"config": {"cfg": tracked[0], "config_dir": learner.config.parent, "overrides": overrides}}


def symptom(learner: Any) -> None:
    """Three values of one setting: what `lab run 94` shows."""
    for draws in SWEEP:
        print(f"$ python train.py policy.draws={draws}", flush=True)
        seen, _ = _observed(learner, [f"policy.draws={draws}", "train.log_every=79"], quiet=False)
        filed = (seen.filed or {}).get("policy", {}).get("draws")
        print(f".hydra/config.yaml: policy.draws: {filed}\n", flush=True)
    print("$ python train.py policy.drawz=4", flush=True)
    seen, _ = _observed(learner, ["policy.drawz=4", "train.steps=1"])
    print("\n".join(seen.message.splitlines()[:3]) if seen.raised else "no error")


class _EnoughError(Exception):
    """Ends a run where training would start."""


def _configuration(learner: Any, overrides: Sequence[str], files: Mapping[str, str] | None = None) -> DictConfig:
    found: list[DictConfig] = []

    def stop(cfg: DictConfig) -> Any:
        found.append(cfg)
        raise _EnoughError

    with _conf(learner, files) as conf, patch.object(learner.train, "train", stop), redirect_stderr(io.StringIO()):
        try:
            _main(learner, conf, overrides)
        except _EnoughError:
            return found[0]
    raise RuntimeError("main() did not call train(cfg), which this lab's checks need.")


def _observed(
    learner: Any,
    overrides: Sequence[str],
    files: Mapping[str, str] | None = None,
    config_name: str = "config",
    quiet: bool = True,
    evaluated: bool = True,
) -> tuple[Run, Any]:
    """One run of `main`, and the policy that it trained, if it trained one."""
    seen, results, printed = Run(), [], io.StringIO()
    train = learner.train.train

    def watched(cfg: DictConfig) -> Any:
        seen.given = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
        results.append(train(cfg))
        seen.after = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
        return results[-1]

    skipped = nullcontext() if evaluated else patch.object(learner.train, "held_out_loss", _nothing, create=True)
    with _conf(learner, files) as conf, patch.object(learner.train, "train", watched), skipped, _counted() as count:
        with redirect_stdout(printed) if quiet else nullcontext(), redirect_stderr(io.StringIO()):
            try:
                _main(learner, conf, overrides, config_name)
            except (Exception, SystemExit) as error:
                seen.raised, seen.message = type(error).__name__, str(error)
        saved = conf.parent / "run" / ".hydra" / "config.yaml"
        if saved.is_file() and seen.raised is None:
            seen.filed = OmegaConf.to_container(OmegaConf.load(saved), resolve=True)  # type: ignore[assignment]
    seen.updates, seen.noisy, seen.encoded = count["updates"], count["noisy"], count["encoded"]
    seen.printed = printed.getvalue().splitlines()
    if results:
        seen.losses = results[-1]["losses"]
    return seen, results[-1]["policy"] if results else None


def _nothing(_: Any) -> float:
    return 0.0


@contextmanager
def _counted() -> Iterator[dict[str, int]]:
    """Counts updates, runs of the head, and the rows of those runs that are part of a training step."""
    count = {"updates": 0, "head": 0, "noisy": 0, "encoded": 0}
    forward, encode = FlowMatchingHead.forward, Policy.encode

    def velocity(head: FlowMatchingHead, feature: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        count["head"] += 1
        count["noisy"] += len(noisy) * torch.is_grad_enabled()
        return forward(head, feature, noisy, time)

    def encoding(policy: Policy, pixel_values: Tensor, *arguments: Any, **named: Any) -> Tensor:
        count["encoded"] += len(pixel_values) * torch.is_grad_enabled()
        return encode(policy, pixel_values, *arguments, **named)

    def updated(*_: Any) -> None:
        count["updates"] += 1

    hook = register_optimizer_step_post_hook(updated)
    try:
        with patch.object(FlowMatchingHead, "forward", velocity), patch.object(Policy, "encode", encoding):
            yield count
    finally:
        hook.remove()


def _predicted(policy: Any, batch: dict[str, Tensor]) -> Tensor:
    with private_randomness(0):
        return policy.eval().predict(batch)  # type: ignore[no-any-return]


def _main(learner: Any, conf: Path, overrides: Sequence[str], config_name: str = "config") -> None:
    """Run the learner's `main` as the command line would."""
    directory = f"hydra.run.dir={conf.parent / 'run'}"
    arguments = ["train.py", "--config-path", str(conf), "--config-name", config_name, directory, *QUIET, *overrides]
    main: Callable[[], None] = learner.train.main
    with patch.object(sys, "argv", arguments), patch.dict(os.environ, {"HYDRA_FULL_ERROR": "1"}):
        main()


@contextmanager
def _conf(learner: Any, files: Mapping[str, str] | None = None) -> Iterator[Path]:
    """A copy of the learner's conf/, with some files replaced or added."""
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "conf"
        shutil.copytree(learner.config.parent, conf)
        for name, text in (files or {}).items():
            (conf / name).write_text(text, encoding="utf-8")
        yield conf
