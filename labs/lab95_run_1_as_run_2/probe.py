"""What the grader and `lab run` measure. Runs with the learner's program, in the sandboxed child."""

from __future__ import annotations

import builtins
import contextlib
import csv
import errno
import gc
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hydra
import safetensors.torch
import torch
from hydra.core.hydra_config import HydraConfig
from safetensors.torch import load_model
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy

QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")
SMALL = ("train.steps=3", "train.batch_size=4", "train.save_every=2")


def files_of_a_run(learner: Any, overrides: Sequence[str], seed: int, folders: Sequence[str]) -> dict[str, Any]:
    """One short run, started in the last of nested `folders`: the files it wrote `inside` and `outside` its directory.

    Paths inside are relative to the run directory, paths outside to the folder in which the run was started.
    `another_disk`: the checkpoints' path is absolute and leads elsewhere. `moved`: the job's working directory is the
    run directory.
    """
    with _desk(learner) as desk:
        run = _job(learner, desk, desk.joinpath("start", *folders), [*SMALL, *overrides, f"seed={seed}"])
        return run.files(desk)


def two_runs(learner: Any, seeds: Sequence[int], reload: bool) -> dict[str, Any]:
    """Short runs from one folder, one after the other. For each run: its losses, the rows of its log, its trained
    weights and, with `reload`, the weights reloaded from its directory by a process in another folder.

    With `reload`, also the weights reloaded by one process that is given relative paths, and by another job of Hydra;
    for each run, the weights or what reloading it raises.
    """
    with _desk(learner) as desk:
        runs = [_job(learner, desk, desk / "start", [*SMALL, f"seed={seed}"]) for seed in seeds]
        return {
            "directories": [run.directory.name for run in runs],
            "losses": [run.losses for run in runs],
            "rows": [run.rows() for run in runs],
            "trained": [_weight(run.policy) for run in runs],
            "reloaded": [_weight(_reload(learner, run.directory, desk / "elsewhere")) for run in runs if reload],
            "relative": _reload_all(learner, [run.directory for run in runs], desk) if reload else [],
            "in_a_job": _reload_in_a_job(learner, [run.directory for run in runs], desk) if reload else [],
        }


def moved_run(learner: Any, seed: int) -> dict[str, Any]:
    """The head's weights of a short run, and the same weights reloaded after its directory was moved.

    Also the reloaded policy's mode, and what reloading raises after the weights were deleted.
    """
    with _desk(learner) as desk:
        run = _job(learner, desk, desk / "start", [*SMALL, f"seed={seed}"])
        archive = Path(shutil.move(run.directory, desk / "archive" / run.directory.name))
        shutil.rmtree(desk / "start")
        reloaded = _reload(learner, archive, desk)
        found = {"trained": _weight(run.policy), "reloaded": _weight(reloaded), "training": reloaded.training}
        for weights in archive.rglob("*.safetensors"):
            weights.unlink()
        return {**found, "without_weights": _raised(lambda: _reload(learner, archive, desk))}


def documented_run(learner: Any, seed: int, overrides: Sequence[str]) -> dict[str, Any]:
    """One run: its losses, its report, and the numbers of the steps after which its directory had new weights."""
    with _desk(learner) as desk:
        run = _job(learner, desk, desk / "start", [*overrides, f"seed={seed}"])
        reports = [json.loads(file.read_text(encoding="utf-8")) for file in run.directory.glob("report.json")]
        return {"losses": run.losses, "report": reports[0] if reports else None, "saved_after": run.saved_after}


def settings(learner: Any) -> dict[str, Any]:
    """The seed and the training settings, composed without an override."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(learner.config.parent), version_base="1.3"):
        composed = compose(learner.config.stem)
    return {"seed": composed.seed, **dict(OmegaConf.to_container(composed.train, resolve=True))}  # type: ignore[arg-type]


def logged(learner: Any, losses: Sequence[float], before: int) -> dict[str, Any]:
    """The loss log of a run that is resumed after `before` steps: the number of lines that another reader finds after
    each step, and the rows in the end. `left_open`: the file was not closed."""
    readable: list[int] = []
    with tempfile.TemporaryDirectory() as root, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        file = Path(root, "curves", "fine", "losses.csv")
        for steps in (range(before), range(before, len(losses))):
            with learner.train.LossLog(file.parent) as log:
                for step in steps:
                    log.write(step, losses[step])
                    readable.append(len(file.read_text(encoding="utf-8").splitlines()))
            del log
            gc.collect()
        rows = [[float(value) for value in row] for row in csv.reader(file.read_text(encoding="utf-8").splitlines())]
    left_open = any(issubclass(one.category, ResourceWarning) for one in told)
    return {"readable": readable, "rows": rows, "left_open": left_open}


def saved(learner: Any, seed: int) -> dict[str, Any]:
    """`save` into a folder that does not exist: whether each mode of the policy is kept. Then a save of other weights
    that fails in the middle: what it raised, and whether the first checkpoint is still there."""

    def half(_tensors: Any, filename: Any, **_: Any) -> None:
        Path(filename).write_bytes(b"half of a file")
        raise OSError(errno.ENOSPC, "No space left on device")

    with tempfile.TemporaryDirectory() as root:
        folder, policy = Path(root, "weights", "best"), Policy.from_base(seed=seed)
        kept = []
        for mode in (True, False):
            learner.train.save(policy.train(mode), folder)
            kept.append(policy.training is mode)
        first = _digest(folder)
        other = Policy.from_base(seed=seed + 1)
        with patch("safetensors.torch.serialize_file", half):
            raised = _raised(lambda: learner.train.save(other, folder))
        return {"keeps_mode": kept, "raised": raised, "still_there": _digest(folder) == first}


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
    moved: bool
    """Whether the job's working directory was the run directory."""
    saved_after: list[int]
    """The numbers of the steps after which the run directory had other weights than before."""

    def files(self, desk: Path) -> dict[str, Any]:
        """All files in the folder `desk`, except for the configuration."""
        every = [path for path in sorted(desk.rglob("*")) if path.is_file() and desk / "conf" not in path.parents]
        inside = [path for path in every if self.directory in path.parents]
        return {
            "inside": [path.relative_to(self.directory).as_posix() for path in inside],
            "outside": [os.path.relpath(path, self.start) for path in every if path not in inside],
            "another_disk": self.out.checkpoints.is_absolute() and desk not in self.out.checkpoints.parents,
            "moved": self.moved,
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
    seen: list[tuple[Path, Any, dict[str, Any], bool, list[int]]] = []
    train = learner.train.train

    def kept(cfg: Any, out: Any) -> dict[str, Any]:
        directory = Path(HydraConfig.get().runtime.output_dir)
        moved = Path.cwd() == directory.resolve()
        digests: list[str] = []
        handle = register_optimizer_step_pre_hook(lambda *_: digests.append(_digest(directory)))
        try:
            result = train(cfg, out)
        finally:
            handle.remove()
        digests.append(_digest(directory))
        changed = [step for step in range(1, len(digests)) if digests[step] != digests[step - 1]]
        seen.append((directory, out, result, moved, changed))
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
    directory, out, result, moved, changed = seen[0]
    return _Run(directory, start, out, result["policy"], result["losses"], moved, changed)


def _reload(learner: Any, directory: Path, here: Path) -> Any:
    here.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(here):
        return learner.train.load_policy(directory)


def _reload_all(learner: Any, directories: Sequence[Path], here: Path) -> list[Tensor | str]:
    """Reload each run by its path relative to the folder `here`, in which the process is at the start."""
    with contextlib.chdir(here):
        return [_weight_or_error(learner, directory.relative_to(here)) for directory in directories]


def _reload_in_a_job(learner: Any, directories: Sequence[Path], desk: Path) -> list[Tensor | str]:
    """Reload each run in a job of Hydra that has a run directory of its own, as an evaluation program does."""
    found: list[Tensor | str] = []

    @hydra.main(version_base="1.3", config_path=str(desk / "conf"))
    def evaluate(_: Any) -> None:
        found.extend(_weight_or_error(learner, directory) for directory in directories)

    arguments = ["evaluate.py", f"hydra.run.dir={desk / 'evaluation'}", *QUIET]
    with contextlib.chdir(desk), patch.object(sys, "argv", arguments):
        evaluate()
    return found


def _weight_or_error(learner: Any, run: Path) -> Tensor | str:
    try:
        return _weight(learner.train.load_policy(run))
    except Exception as error:  # the check reports it
        return type(error).__name__


def _digest(folder: Path) -> str:
    """Of all complete checkpoints in the folder, wherever they are in it."""
    parts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.safetensors"))]
    return " ".join(parts)


def _raised(call: Callable[[], object]) -> str | None:
    """The kind of error that a call raises."""
    try:
        call()
    except Exception as error:  # the check decides whether it is the expected one
        return type(error).__name__
    return None


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


def run_beside_other_weights(learner: Any, seed: int) -> dict[str, Any]:
    """A short run, reloaded where other weights can be found: another run's are in the folders of the same names in
    the working directory, and beside the run directory.

    `trained` are the run's weights, `reloaded` what `load_policy` returns. Then, without the run's own checkpoint, what
    reloading raises: with nothing in its place, `missing`, and with only an unfinished file, `unfinished`.
    """
    with _desk(learner) as desk:
        run = _job(learner, desk, desk / "start", [*SMALL, f"seed={seed}"])
        other = _job(learner, desk, desk / "start", [*SMALL, f"seed={seed + 1}"])
        checkpoint, weights = (_checkpoint(one.directory) for one in (run, other))
        inside = checkpoint.relative_to(run.directory)
        here = desk / "elsewhere"
        for folder in (here, run.directory.parent, desk / "start"):
            for place in (folder / inside, folder / inside.name):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(weights, place)
        found: dict[str, Any] = {"trained": _weight(run.policy)}
        found["reloaded"] = _weight(_reload(learner, run.directory, here))
        unfinished = checkpoint.with_name(f"{checkpoint.name}.part")
        checkpoint.rename(unfinished)
        found["unfinished"] = _raised(lambda: _reload(learner, run.directory, here))
        unfinished.unlink()
        found["missing"] = _raised(lambda: _reload(learner, run.directory, here))
        return found


def _checkpoint(directory: Path) -> Path:
    found = sorted(directory.rglob("*.safetensors"))
    if not found:
        raise RuntimeError("The run directory has no checkpoint, which this lab's checks need.")
    return found[0]


def saved_beside_another_disk(learner: Any, seed: int) -> dict[str, Any]:
    """`save` of a second checkpoint where only the run's folder is on this disk, and the temporary folder on another.

    `raised` is what it raised, `trained` are the weights of the policy and `saved` those of the checkpoint. Then a save
    of a third one while the run's disk is full: what it `raised_when_full`, and the weights `kept` after it.
    """
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "weights", "best")
        first, second, third = (Policy.from_base(seed=seed + number) for number in range(3))
        learner.train.save(first, folder)
        checkpoint = _checkpoint(folder)
        with _own_disk(folder):
            raised = _raised(lambda: learner.train.save(second, folder))
        found: dict[str, Any] = {"raised": raised, "trained": _weight(second), "saved": _saved_weight(checkpoint)}
        with _own_disk(folder), _full(folder):
            found["raised_when_full"] = _raised(lambda: learner.train.save(third, folder))
        return {**found, "kept": _saved_weight(checkpoint)}


def _saved_weight(checkpoint: Path) -> Tensor | str:
    """The head's weights in a checkpoint, or the kind of error that reading them raises."""
    policy = Policy.from_base(seed=0)
    try:
        load_model(policy, str(checkpoint))
    except Exception as error:  # the check reports it
        return type(error).__name__
    return _weight(policy)


@contextlib.contextmanager
def _own_disk(folder: Path) -> Iterator[None]:
    """The folder is on a disk of its own: a file cannot be renamed into it or out of it."""

    def apart(call: Callable[..., Any]) -> Callable[..., Any]:
        def moved(source: Any, target: Any, *args: Any, **named: Any) -> Any:
            if _is_inside(source, folder) != _is_inside(target, folder):
                raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))
            return call(source, target, *args, **named)

        return moved

    with contextlib.ExitStack() as patched:
        for name in ("rename", "replace", "link"):
            patched.enter_context(patch.object(os, name, apart(getattr(os, name))))
        yield


@contextlib.contextmanager
def _full(folder: Path) -> Iterator[None]:
    """The folder's disk is full: a file that is opened there for writing gets half of its content, and raises."""
    really_open, serialize = open, safetensors.torch.serialize_file

    def half(path: Any) -> None:
        with really_open(path, "wb") as file:
            file.write(b"half of a file")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def opened(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        if set(mode) & set("wax+") and not isinstance(file, int) and _is_inside(file, folder):
            half(file)
        return really_open(file, mode, *args, **named)

    def serialized(tensors: Any, filename: Any, *args: Any, **named: Any) -> Any:
        if _is_inside(filename, folder):
            half(filename)
        return serialize(tensors, filename, *args, **named)

    with (
        patch.object(builtins, "open", opened),
        patch.object(io, "open", opened),
        patch.object(safetensors.torch, "serialize_file", serialized),
    ):
        yield


def _is_inside(path: Any, folder: Path) -> bool:
    return folder.resolve() in Path(os.fsdecode(path)).resolve().parents
