"""What the grader and `lab run` measure. Runs with the learner's program, in the sandboxed child."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from hydra.core.hydra_config import HydraConfig
from torch import Tensor

from labs.vla.dataset import batches, demonstrations

QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")
SMALL = ("train.steps=3", "train.batch_size=4", "train.save_every=2")


def files_of_a_run(learner: Any, overrides: Sequence[str], seed: int, folders: Sequence[str]) -> dict[str, list[str]]:
    """One short run, started in the last of nested `folders`: the files it wrote `inside` and `outside` its directory.

    Paths inside are relative to the run directory, paths outside to the folder in which the run was started.
    """
    with _desk(learner) as desk:
        run = _job(learner, desk, desk.joinpath("start", *folders), [*SMALL, *overrides, f"seed={seed}"])
        return run.files(desk)


def two_runs(learner: Any, seeds: Sequence[int], reload: bool) -> dict[str, Any]:
    """Short runs from one folder, one after the other. For each run: its losses, the rows of its log, its trained
    weights and, with `reload`, the weights reloaded from its directory by a process in another folder."""
    with _desk(learner) as desk:
        runs = [_job(learner, desk, desk / "start", [*SMALL, f"seed={seed}"]) for seed in seeds]
        return {
            "directories": [run.directory.name for run in runs],
            "losses": [run.losses for run in runs],
            "rows": [run.rows() for run in runs],
            "trained": [_weight(run.policy) for run in runs],
            "reloaded": [_weight(_reload(learner, run.directory, desk / "elsewhere")) for run in runs if reload],
        }


def moved_run(learner: Any, seed: int) -> dict[str, Tensor]:
    """The head's weights of a short run, and the same weights reloaded after its directory was moved."""
    with _desk(learner) as desk:
        run = _job(learner, desk, desk / "start", [*SMALL, f"seed={seed}"])
        archive = shutil.move(run.directory, desk / "archive" / run.directory.name)
        shutil.rmtree(desk / "start")
        return {"trained": _weight(run.policy), "reloaded": _weight(_reload(learner, Path(archive), desk))}


def reloaded_loss(learner: Any, seed: int) -> dict[str, float]:
    """A complete run, then a short one; the first run's held-out loss, as trained and as reloaded."""
    held_out = next(batches(demonstrations(128, seed=95), 128, steps=1, seed=95))
    with _desk(learner) as desk:
        first = _job(learner, desk, desk / "start", [f"seed={seed}"])
        _job(learner, desk, desk / "start", [*SMALL, f"seed={seed + 1}"])
        reloaded = _reload(learner, first.directory, desk / "elsewhere")
        with torch.no_grad():
            return {
                "at_the_start": first.losses[0],
                "as_trained": float(first.policy(**held_out).loss),
                "as_reloaded": float(reloaded(**held_out).loss),
            }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a short run's policy predicts after reloading, (B, H, 3)."""
    with _desk(learner) as desk:
        run = _job(learner, desk, desk / "start", [*SMALL, f"seed={seed % 1000}"])
        return _reload(learner, run.directory, desk / "start").predict(batch)


def subject(learner: Any) -> dict[str, Any]:
    """check_config()'s arguments: the configuration, and the folders to which a short run wrote."""
    with _desk(learner) as desk:
        run = _job(learner, desk, desk / "start", SMALL)
    directories = {"checkpoints": run.out.checkpoints, "logs": run.out.logs}
    return {"config": {"config_dir": learner.config.parent, "directories": directories, "run_dir": run.directory}}


def symptom(learner: Any) -> None:
    """Run twice, list the files, and reload: what `lab run 95` shows."""
    held_out = next(batches(demonstrations(128, seed=95), 128, steps=1, seed=95))

    def loss(policy: Any) -> float:
        with torch.no_grad():
            return float(policy(**held_out).loss)

    with _desk(learner) as desk:
        runs = []
        for seed, more in ((1, ()), (2, ("train.steps=20",))):
            print(f"$ {' '.join(('python', 'train.py', f'seed={seed}', *more))}")
            runs.append(_job(learner, desk, desk / "start", [f"seed={seed}", *more, "hydra.run.dir=runs/${seed}"]))
        print("\n$ find . -type f")
        for path in sorted(path for path in (desk / "start").rglob("*") if path.is_file()):
            print(f"./{path.relative_to(desk / 'start').as_posix()}")
        print(f"\nrun 1, after its training: held-out loss {loss(runs[0].policy):.3f}")
        print(f"run 2, after its training: held-out loss {loss(runs[1].policy):.3f}")
        reloaded = _reload(learner, runs[0].directory, desk / "start")
        print(f'load_policy("runs/1"):     held-out loss {loss(reloaded):.3f}')
        print('\n$ cd .. && load_policy("start/runs/1")')
        try:
            print(f"held-out loss {loss(_reload(learner, runs[0].directory, desk)):.3f}")
        except Exception as error:
            print(f"{type(error).__name__}: {str(error).replace(str(desk), '')}")


@dataclass(frozen=True)
class _Run:
    """One finished run."""

    directory: Path
    start: Path
    out: Any
    policy: Any
    losses: list[float]

    def files(self, desk: Path) -> dict[str, list[str]]:
        """All files in the folder `desk`, except for the configuration."""
        every = [path for path in sorted(desk.rglob("*")) if path.is_file() and desk / "conf" not in path.parents]
        inside = [path for path in every if self.directory in path.parents]
        return {
            "inside": [path.relative_to(self.directory).as_posix() for path in inside],
            "outside": [os.path.relpath(path, self.start) for path in every if path not in inside],
        }

    def rows(self) -> list[float]:
        """The losses in every CSV file of the run directory, in the order of the file."""
        return [
            float(loss)
            for file in sorted(self.directory.rglob("*.csv"))
            for _, loss in csv.reader(file.read_text(encoding="utf-8").splitlines())
        ]


def _job(learner: Any, desk: Path, start: Path, overrides: Sequence[str]) -> _Run:
    """Run the learner's `main` from the folder `start` as the command line would."""
    seen: list[tuple[Path, Any, dict[str, Any]]] = []
    train = learner.train.train

    def kept(cfg: Any, out: Any) -> dict[str, Any]:
        directory = Path(HydraConfig.get().runtime.output_dir)
        result = train(cfg, out)
        seen.append((directory, out, result))
        return result

    arguments = ["train.py", "--config-path", str(desk / "conf"), *QUIET, *overrides]
    start.mkdir(parents=True, exist_ok=True)
    loud = patch.dict(os.environ, {"HYDRA_FULL_ERROR": "1"})
    with (
        contextlib.chdir(start),
        patch.object(sys, "argv", arguments),
        patch.object(learner.train, "train", kept),
        loud,
    ):
        learner.train.main()
    if not seen:
        raise RuntimeError("main() did not call train(cfg, out), which this lab's checks need.")
    directory, out, result = seen[0]
    return _Run(directory, start, out, result["policy"], result["losses"])


def _reload(learner: Any, directory: Path, here: Path) -> Any:
    here.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(here):
        return learner.train.load_policy(directory)


def _weight(policy: Any) -> Tensor:
    """The action head's weights in one vector, which differ from run to run."""
    return torch.cat([value.detach().flatten() for value in policy.head.parameters()])


@contextlib.contextmanager
def _desk(learner: Any) -> Iterator[Path]:
    """A temporary folder with a copy of the learner's conf/, for the files of the runs."""
    with tempfile.TemporaryDirectory() as folder:
        desk = Path(folder).resolve()
        shutil.copytree(learner.config.parent, desk / "conf")
        (desk / "archive").mkdir()
        yield desk
