"""What the grader and `lab run` measure. Runs with the learner's program, in the sandboxed child."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hydra.core.utils
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from labs.vla.policy import Policy

QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")
COMMAND_LINES = ((), ("experiment=large_batch",), ("experiment=large_batch", "train.batch_size=8"))


def composed(
    learner: Any,
    overrides: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    project: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The configuration that `main` passes to `train` with these overrides.

    `files` of conf/ are replaced, and the settings of `project` are added to those of the main config.
    """
    return OmegaConf.to_container(_composed(learner, overrides, files, project), resolve=True)


def composed_by_another_project(learner: Any, main: str) -> dict[str, Any]:
    """The configuration that the shared groups give a project whose main config is `main`."""
    from hydra import compose, initialize_config_dir

    with _conf(learner, {"other_project.yaml": main}) as conf, initialize_config_dir(str(conf), version_base="1.3"):
        return OmegaConf.to_container(compose("other_project"), resolve=True)


def trained(
    learner: Any, overrides: Sequence[str], seed: int, batch: dict[str, Tensor] | None = None
) -> dict[str, Any]:
    """One complete run.

    Every loss, the sizes of the batches that the policy received, the config that Hydra saved, the report, what was
    printed, and the chunk that the trained policy predicts for `batch`.
    """
    sizes: list[int] = []
    results: list[dict[str, Any]] = []
    forward, train = Policy.forward, learner.train.train
    printed = io.StringIO()

    def counting(policy: Policy, pixel_values: Tensor, *arguments: Any, **batch: Any) -> Any:
        sizes.append(len(pixel_values))
        return forward(policy, pixel_values, *arguments, **batch)

    def kept(cfg: DictConfig) -> dict[str, Any]:
        results.append(train(cfg))
        return results[-1]

    with (
        _conf(learner) as conf,
        patch.object(Policy, "forward", counting),
        patch.object(learner.train, "train", kept),
        redirect_stdout(printed),
    ):
        run = _main(learner, conf, [*overrides, f"seed={seed}"])
        filed = OmegaConf.to_container(OmegaConf.load(run / ".hydra" / "config.yaml"))
        report = run / "report.json"
        reported = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    seen = {"losses": results[0]["losses"], "batch_sizes": sizes, "filed": filed, "report": reported}
    predicted = None if batch is None else results[0]["policy"].eval().predict(batch)
    return seen | {"printed": printed.getvalue().splitlines(), "action": predicted}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy of this configuration predicts, (B, H, 3)."""
    return learner.train.build_policy(_composed(learner, (f"seed={seed}",))).eval().predict(batch)


def subject(learner: Any) -> dict[str, Any]:
    """check_config()'s arguments: the learner's configuration, composed without any override."""
    return {"config": {"config_dir": learner.config.parent, "config_name": learner.config.stem}}


def symptom(learner: Any) -> None:
    """Print the file's settings, and run three command lines: what `lab run 93` shows."""
    said = OmegaConf.load(learner.config).get("train", {})
    print(f"conf/config.yaml: train.batch_size: {said.get('batch_size')}, learning_rate: {said.get('learning_rate')}")
    for overrides in COMMAND_LINES:
        print(f"\n$ {' '.join(('python', 'train.py', *overrides))}", flush=True)
        with _conf(learner) as conf:
            _main(learner, conf, [*overrides, "train.log_every=59"])


class _EnoughError(Exception):
    """Ends a run where training would start."""


def _composed(
    learner: Any,
    overrides: Sequence[str],
    files: Mapping[str, str] | None = None,
    project: Mapping[str, Any] | None = None,
) -> DictConfig:
    seen: list[DictConfig] = []

    def stop(cfg: DictConfig) -> Any:
        seen.append(cfg)
        raise _EnoughError

    with _conf(learner, files, project) as conf, patch.object(learner.train, "train", stop):
        try:
            _main(learner, conf, overrides)
        except _EnoughError:
            return seen[0]
    raise RuntimeError("main() did not call train(cfg), which this lab's checks need.")


def _main(learner: Any, conf: Path, overrides: Sequence[str]) -> Path:
    """Run the learner's `main` as the command line would; returns the run directory."""
    run = conf.parent / "run"
    arguments = ["train.py", "--config-path", str(conf), f"hydra.run.dir={run}", *QUIET, *overrides]
    main: Callable[[], None] = learner.train.main
    with patch.object(sys, "argv", arguments), patch.dict(os.environ, {"HYDRA_FULL_ERROR": "1"}):
        main()
    return run


@contextmanager
def _conf(
    learner: Any, files: Mapping[str, str] | None = None, project: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """A copy of the learner's conf/, with some files replaced and settings added to the main config."""
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "conf"
        shutil.copytree(learner.config.parent, conf)
        for name, text in (files or {}).items():
            (conf / name).write_text(text, encoding="utf-8")
        if project:
            main = conf / learner.config.name
            own = main.read_text(encoding="utf-8")
            package = [line for line in own.splitlines() if line.startswith("# @package")]
            added = OmegaConf.to_yaml(OmegaConf.merge(OmegaConf.create(own), dict(project)))
            main.write_text("\n".join([*package, added]), encoding="utf-8")
        yield conf


def run_directories(learner: Any, runs: Sequence[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
    """Runs from one folder, each started at a given time (ISO 8601) with some overrides, and ended before its training.

    For each run its `directory`, relative to that folder, the settings that `train` received, `given`, and the settings
    saved in the directory after the last run, `filed`.
    """
    seen: list[dict[str, Any]] = []

    def stop(cfg: DictConfig) -> Any:
        directory = Path(HydraConfig.get().runtime.output_dir)
        seen.append({"directory": directory, "given": OmegaConf.to_container(cfg, resolve=True)})
        raise _EnoughError

    with _conf(learner) as conf, chdir(conf.parent), patch.object(learner.train, "train", stop):
        for time, overrides in runs:
            arguments = ["train.py", "--config-path", str(conf), *QUIET, *overrides]
            clock = patch.object(hydra.core.utils, "datetime", _clock_at(datetime.fromisoformat(time)))
            loud = patch.dict(os.environ, {"HYDRA_FULL_ERROR": "1"})
            with clock, loud, patch.object(sys, "argv", arguments), suppress(_EnoughError):
                learner.train.main()
        for run in seen:
            saved = run["directory"] / ".hydra" / "config.yaml"
            run["filed"] = OmegaConf.to_container(OmegaConf.load(saved), resolve=True) if saved.is_file() else None
            run["directory"] = os.path.relpath(run["directory"].resolve(), conf.parent.resolve())
    return seen


def _clock_at(time: datetime) -> type[datetime]:
    """A datetime whose `now` is this time: Hydra names run directories after it."""

    class Clock(datetime):
        @classmethod
        def now(cls, _: Any = None) -> datetime:
            return time

    return Clock
