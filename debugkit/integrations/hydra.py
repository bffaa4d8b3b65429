"""Check a Hydra configuration: the origin of each value, keys that are never read, and the folders a run writes to.

A script needs two lines. Everything else is taken from Hydra:

    @hydra.main(version_base="1.3", config_path="conf", config_name="config")
    def main(cfg):
        cfg = track_reads(cfg)                       # still a DictConfig; records which keys are read
        model, loader, trainer = build(cfg)
        check_config(cfg, directories={"checkpoints": trainer.checkpoints}).print()

Outside a run, `provenance("conf", "config", ["train=large"])` composes the configuration as the command line would. Its
result prints as a table. `check_config(config_dir="conf", config_name="config", overrides=[…])` applies the rules DK901
to DK904 to it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import hydra  # noqa: F401
except ImportError:
    raise ImportError(
        "debugkit.integrations.hydra needs hydra-core, which is not installed: pip install hydra-core."
    ) from None

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from debugkit.finding import NotExamined, Unexamined
from debugkit.integrations.hydra_provenance import flatten, provenance
from debugkit.integrations.hydra_reads import reads_of, track_reads, unnoticed
from debugkit.integrations.hydra_yaml import leaf_values, repeated_keys
from debugkit.measurements.config_composition import ConfigComposition, ConfigLeaf, Setting
from debugkit.rules.dk902_config_key_never_read import ConfigReads
from debugkit.rules.dk903_config_type import ConfigValue, ConfigValues
from debugkit.rules.dk904_output_directories_split import OutputDirectories, OutputPlace

if TYPE_CHECKING:
    from debugkit.report import Report

__all__ = ["ConfigComposition", "ConfigLeaf", "Setting", "check_config", "provenance", "track_reads"]

_OUTPUT_KEYS = frozenset(
    {
        "output_dir",
        "out_dir",
        "save_dir",
        "log_dir",
        "logdir",
        "logging_dir",
        "checkpoint_dir",
        "ckpt_dir",
        "dirpath",
        "default_root_dir",
    }
)
"""Last parts of keys whose value is an output folder."""


def check_config(
    cfg: Mapping[str, Any] | DictConfig | None = None,
    *,
    config_dir: str | Path | None = None,
    config_name: str | None = None,
    overrides: Sequence[str] | None = None,
    files: Sequence[str | Path] = (),
    directories: Mapping[str, str | Path] | None = None,
    run_dir: str | Path | None = None,
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | None = None,
) -> Report:
    """Apply the rules DK901 to DK904 to a configuration. Returns a report like that of `debugkit.check`.

    Inside `@hydra.main`, pass only `cfg`: the config folder, the overrides and the run directory are taken from Hydra.
    Elsewhere, pass `config_dir`, `config_name` and `overrides`. `files` are YAML files that the program reads itself.
    `directories` maps each kind of output (`checkpoints`, `logs`) to its folder. Without it, keys with names such as
    `save_dir` and `dirpath` are used. Raises UnknownCodeError for an unknown code. If Hydra cannot compose the
    configuration, the report's `failure` contains the reason.
    """
    from debugkit.declare import Declare
    from debugkit.judging import judge
    from debugkit.report import Report
    from debugkit.root_cause import fold
    from debugkit.rule import all_rules, choose, codes_in

    job = _Job.of(config_dir, config_name, overrides, run_dir)
    seen: dict[type, object] = {}
    missing: dict[type, Unexamined] = {}
    failure = None
    if (reads := reads_of(cfg)) is not None:
        seen[ConfigReads] = reads
    else:
        missing[ConfigReads] = Unexamined("", "The config was not tracked: call cfg = track_reads(cfg) first.")
    try:
        seen[ConfigComposition] = job.composition()
    except NotExamined as limit:
        missing[ConfigComposition] = Unexamined("", str(limit))
    except (HydraException, OmegaConfBaseException) as error:
        failure = f"Hydra could not compose {job.config_name}: {_sentence(error)}"
        missing[ConfigComposition] = Unexamined("", failure)
    except RuntimeError as error:
        missing[ConfigComposition] = Unexamined("", str(error), error)
    composition = seen.get(ConfigComposition)
    assert composition is None or isinstance(composition, ConfigComposition)
    with unnoticed(cfg):
        seen[ConfigValues] = _values(cfg, composition, files, job.yaml_files())
        try:
            seen[OutputDirectories] = _directories(cfg, composition, directories, job)
        except NotExamined as limit:
            missing[OutputDirectories] = Unexamined("", str(limit))
    kinds = {ConfigReads, ConfigComposition, ConfigValues, OutputDirectories}
    about_configs = (rule for rule in all_rules() if kinds >= set(rule.needs) != set())
    rules = choose(about_configs, codes_in(select), codes_in(ignore))
    findings, examined, unexamined = judge(rules, seen, missing, Declare(), mode="config")
    return Report(fold(findings), tuple(examined), tuple(unexamined), failure, job.title)


@dataclass(frozen=True)
class _Job:
    """The configuration to compose, and the run directory."""

    config_dir: Path | None
    config_name: str
    overrides: tuple[str, ...]
    run_dir: Path | None
    changes_dir: bool

    @classmethod
    def of(
        cls,
        config_dir: str | Path | None,
        config_name: str | None,
        overrides: Sequence[str] | None,
        run_dir: str | Path | None,
    ) -> _Job:
        """From the caller's arguments, otherwise from the running Hydra job."""
        if config_dir is not None or not HydraConfig.initialized():
            folder = None if config_dir is None else Path(config_dir)
            run = None if run_dir is None else Path(run_dir)
            return cls(folder, config_name or "config", tuple(overrides or ()), run, changes_dir=False)
        running = HydraConfig.get()
        sources = [source for source in running.runtime.config_sources if source.provider == "main"]
        folder = next((found for source in sources if (found := _folder(source.schema, source.path))), None)
        typed = (*running.overrides.hydra, *running.overrides.task)
        run = Path(run_dir or running.runtime.output_dir)
        return cls(folder, running.job.config_name or "config", typed, run, bool(running.job.chdir))

    @property
    def title(self) -> str:
        """The config name and the overrides."""
        return " ".join(["configuration", self.config_name, *self.overrides])

    def composition(self) -> ConfigComposition:
        """The provenance. Raises NotExamined, HydraException, OmegaConfBaseException, RuntimeError."""
        if self.config_dir is None:
            raise NotExamined("No config folder is known: call it inside @hydra.main, or pass config_dir=.")
        return provenance(self.config_dir, self.config_name, self.overrides)

    def yaml_files(self) -> list[Path]:
        """The YAML files that the composition may use."""
        return [] if self.config_dir is None else sorted(self.config_dir.rglob("*.yaml"))


def _folder(scheme: str, path: str) -> Path | None:
    """The folder of a config source. A program started with `python -m` has its configs in a package."""
    if scheme == "file":
        return Path(path)
    try:
        spec = importlib.util.find_spec(path.replace("/", ".")) if scheme == "pkg" else None
    except ImportError:
        return None
    return next(map(Path, spec.submodule_search_locations or ()), None) if spec else None


def _values(
    cfg: Any, composition: ConfigComposition | None, files: Sequence[str | Path], composed: Sequence[Path]
) -> ConfigValues:
    """The leaves that are strings, from the composition if there is one, otherwise from `cfg`, and from `files`."""
    texts: list[ConfigValue] = []
    count = 0
    if composition is not None:
        for leaf in composition.leaves:
            count += 1
            won, kinds = leaf.winner, tuple(type(setting.value).__name__ for setting in leaf.beaten)
            if isinstance(won.value, str):
                texts.append(ConfigValue(leaf.key, won.value, kinds, won.place, won.at))
    elif cfg is not None:
        for key, value in flatten(cfg):
            count += 1
            if isinstance(value, str):
                texts.append(ConfigValue(key, value))
    for file in map(Path, files):
        for key, value, at in leaf_values(file):
            count += 1
            if isinstance(value, str):
                texts.append(ConfigValue(key, value, (), f"{file.name}:{at.line}", at))
    repeated = [each for file in (*composed, *map(Path, files)) for each in repeated_keys(file)]
    return ConfigValues(tuple(texts), tuple(repeated), count)


def _directories(
    cfg: Any, composition: ConfigComposition | None, declared: Mapping[str, str | Path] | None, job: _Job
) -> OutputDirectories:
    if job.run_dir is None:
        raise NotExamined("No run directory is known: call it inside @hydra.main, or pass run_dir=.")
    if declared is not None:
        places = [_place(role, os.fspath(path), declared=True) for role, path in declared.items()]
    else:
        places = list(_places_by_name(cfg, composition))
    if not places:
        raise NotExamined(
            "No folder that the run writes to is known: pass directories={'checkpoints': …, 'logs': …}, or name the "
            "keys so (save_dir, dirpath, …)."
        )
    run_dir = os.path.abspath(job.run_dir)  # noqa: PTH100 (as in the run: symlinks are not resolved)
    return OutputDirectories(run_dir, str(Path.cwd()), job.changes_dir, tuple(places))


def _places_by_name(cfg: Any, composition: ConfigComposition | None) -> Iterator[OutputPlace]:
    if not isinstance(cfg, DictConfig):
        return
    for key, _ in flatten(cfg):
        if key.rpartition(".")[2] not in _OUTPUT_KEYS:
            continue
        try:
            value = OmegaConf.select(cfg, key)
        except OmegaConfBaseException:
            continue  # this interpolation cannot be resolved here
        if isinstance(value, str) and value:
            at = composition.of(key).winner.at if composition else None
            yield _place(key, value, declared=False, at=at)


def _place(role: str, path: str, *, declared: bool, at: Any = None) -> OutputPlace:
    return OutputPlace(role, path, os.path.abspath(os.path.expanduser(path)), declared, at)  # noqa: PTH100, PTH111


def _sentence(error: BaseException) -> str:
    """The first line of Hydra's message. Hydra's wrapper exception has no text; its cause has."""
    while not str(error) and error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0] or type(error).__name__
