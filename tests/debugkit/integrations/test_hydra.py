"""What the Hydra integration promises, on real compositions and real jobs."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError

from child_processes import run
from debugkit.integrations.hydra import check_config, provenance, track_reads
from debugkit.integrations.hydra_provenance import flatten
from debugkit.integrations.hydra_reads import reads_of

FILES = {
    "config.yaml": "defaults:\n  - _self_\n  - train: base\n  - extra: null\n\nseed: 0\ntrain:\n  batch_size: 64\n",
    "train/base.yaml": "batch_size: 16\nlearning_rate: 1e-3\nbetas: [0.9, 0.95]\n",
    "train/large.yaml": "defaults:\n  - /train/base@_here_\n  - _self_\n\nbatch_size: 256\nscale: ${seed}\n",
    "extra/global.yaml": "# @package _global_\nseed: 7\nlogger:\n  folder: logs\n",
}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "conf"


def test_each_leaf_knows_who_set_it_and_what_it_beat(conf: Path) -> None:
    found = provenance(conf, "config", ["train=large", "seed=3"])
    batch = found.of("train.batch_size")
    assert [(each.value, each.source, each.chosen_by) for each in batch.settings] == [
        (64, "config", "the main config"),
        (16, "train/base", "the command line"),
        (256, "train/large", "the command line"),
    ]
    assert batch.winner.at is not None
    assert (Path(batch.winner.at.file).name, batch.winner.at.line) == ("large.yaml", 5)
    assert [each.value for each in found.of("seed").settings] == [0, 3]
    assert found.of("seed").winner.source == "seed=3"
    assert found.of("train.scale").winner.value == "${seed}"
    assert found.of("train.betas").winner.value == [0.9, 0.95]


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["train=large"],
        ["extra=global", "logger.folder=elsewhere"],
        ["+new={a: 1, b: {c: 2}}", "train.betas=[0.8,0.9]"],
        ["~seed", "++train.batch_size=1"],
        ["~train"],
        ["hydra.job.name=mine", "hydra/job_logging=none"],
    ],
    ids=" ".join,
)
def test_provenance_arrives_at_hydras_own_result(conf: Path, overrides: list[str]) -> None:
    found = provenance(conf, "config.yaml", overrides)
    with initialize_config_dir(str(conf), version_base="1.3"):
        composed = compose("config", overrides)
    assert {leaf.key: leaf.winner.value for leaf in found.leaves} == dict(flatten(composed))


def test_package_of_a_config_is_in_its_setting(conf: Path) -> None:
    found = provenance(conf, "config", ["extra=global"])
    assert found.of("logger.folder").winner.package == ""
    assert found.of("train.learning_rate").winner.package == "train"


@dataclass
class _Training:
    batch_size: int = 8
    names: dict[str, int] = field(default_factory=dict)


def test_structured_configs_have_a_provenance_without_a_line(conf: Path) -> None:
    ConfigStore.instance().store(group="train", name="typed", node=_Training)
    found = provenance(conf, "config", ["train=typed", "train.batch_size='32'"])
    assert [each.value for each in found.of("train.batch_size").settings] == [64, 8, "32"]
    assert found.of("train.batch_size").settings[1].at is None


def test_composing_again_leaves_hydras_global_state_alone(conf: Path) -> None:
    with initialize_config_dir(str(conf), version_base="1.3"):
        before = GlobalHydra.instance().hydra
        provenance(conf, "config")
        assert GlobalHydra.instance().hydra is before
        assert compose("config").train.batch_size == 16
    assert not GlobalHydra.instance().is_initialized()
    assert not HydraConfig.initialized()


def test_printed_it_is_a_table_of_the_leaves(conf: Path) -> None:
    lines = str(provenance(conf, "config", ["train=large"])).splitlines()
    [line] = [line for line in lines if line.startswith("train.batch_size")]
    expected = "train.batch_size 256 train/large.yaml:5 overrides 16 (train/base.yaml:1), 64 (config.yaml:8)"
    assert " ".join(line.split()) == expected


def test_unknown_key_names_the_near_ones(conf: Path) -> None:
    with pytest.raises(KeyError, match=r"Leaves with the same last part: train\.batch_size"):
        provenance(conf, "config").of("batch_size")


def test_composition_that_hydra_refuses_raises_hydras_error_and_fails_the_report(conf: Path) -> None:
    with pytest.raises(ConfigCompositionException):
        provenance(conf, "config", ["train.batchsize=1"])
    report = check_config(config_dir=conf, overrides=["train.batchsize=1"])
    assert report.failure is not None
    assert "Could not override 'train.batchsize'" in report.failure
    assert not report.ok


def test_report_is_of_the_usual_kind(conf: Path) -> None:
    report = check_config(config_dir=conf, config_name="config")
    [finding] = report.findings
    assert (finding.code, finding.location.file, finding.location.line) == (
        "DK901",
        str((conf / "train/base.yaml").resolve()),
        1,
    )
    assert report.examined == ("DK901", "DK903")
    assert {entry.code for entry in report.not_examined} == {"DK902", "DK904"}
    assert json.loads(json.dumps(report.to_json()))["findings"][0]["evidence"]["stands"] == 16
    assert "`train.batch_size` is 16, not 64" in report.to_text()
    assert not check_config(config_dir=conf, ignore="DK901").findings


@pytest.fixture
def cfg() -> DictConfig:
    values = {"lr": 0.1, "model": {"width": "${size}", "layers": [1, 2]}, "size": 64, "path": "???"}
    made = OmegaConf.create(values)
    OmegaConf.set_struct(made, True)
    return made


def test_tracked_config_is_a_dictconfig_still(cfg: DictConfig) -> None:
    tracked = track_reads(cfg)
    assert isinstance(tracked, DictConfig)
    assert isinstance(tracked.model, DictConfig)
    assert OmegaConf.is_struct(tracked)
    assert tracked == cfg
    assert OmegaConf.to_yaml(tracked) == OmegaConf.to_yaml(cfg)
    assert OmegaConf.is_missing(tracked, "path")
    assert tracked.model.width == 64
    with pytest.raises(ConfigAttributeError):
        tracked.typo  # noqa: B018 (it is asked for)
    tracked.lr = 0.2
    assert (tracked.lr, cfg.lr) == (0.2, 0.1)
    assert type(cfg) is DictConfig


def test_reads_are_the_leaves_that_were_read(cfg: DictConfig) -> None:
    tracked = track_reads(cfg)
    assert list(tracked) == ["lr", "model", "size", "path"]
    assert reads_of(tracked).read == frozenset()  # type: ignore[union-attr]
    assert tracked.model.width == 64
    reads = reads_of(tracked)
    assert reads is not None
    assert reads.read == {"model.width", "size"}
    assert reads.leaves == ("lr", "model.width", "model.layers", "size", "path")


def test_copies_are_tracked_and_pickles_are_plain(cfg: DictConfig) -> None:
    tracked = track_reads(cfg)
    assert copy.deepcopy(tracked).lr == 0.1
    assert reads_of(tracked).read == {"lr"}  # type: ignore[union-attr]
    sent = pickle.loads(pickle.dumps(tracked))
    assert type(sent) is DictConfig
    assert sent.model.width == 64


def test_checking_does_not_count_as_reading(cfg: DictConfig) -> None:
    tracked = track_reads(cfg)
    assert tracked.lr == 0.1
    for _ in range(2):
        report = check_config(tracked, run_dir="/runs/1")
        assert "4 of 5 keys" in report.by_code["DK902"][0].message


def test_only_a_dictconfig_can_be_tracked() -> None:
    with pytest.raises(TypeError, match="takes the DictConfig"):
        track_reads({"lr": 1})  # type: ignore[arg-type]


SCRIPT = """
import hydra, json, sys
from debugkit.integrations.hydra import check_config, track_reads

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    cfg = track_reads(cfg)
    cfg.train.batch_size, cfg.seed
    report = check_config(cfg, directories={"checkpoints": "checkpoints"})
    print(json.dumps(report.to_json()))

main()
"""


def _job(folder: Path, *arguments: str) -> dict[str, Any]:
    (folder / "train.py").write_text(SCRIPT)
    done = run([sys.executable, "train.py", *arguments], cwd=folder, check=True)
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


@pytest.mark.slow
def test_two_lines_in_a_hydra_job_are_enough(conf: Path) -> None:
    report = _job(conf.parent, "train=base", "seed=1")
    codes = {finding["code"] for finding in report["findings"]}
    assert codes == {"DK902", "DK904"}  # train=base was asked for, so it may beat the main config
    assert report["not_examined"] == []
    split = next(finding for finding in report["findings"] if finding["code"] == "DK904")
    assert "outputs" in split["evidence"]["run_dir"]
    moved = _job(conf.parent, "hydra.job.chdir=True")
    assert {finding["code"] for finding in moved["findings"]} == {"DK901", "DK902"}


@pytest.mark.slow
def test_a_job_started_as_a_module_knows_its_configs(conf: Path) -> None:
    (conf.parent / "program.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "program", "seed=1"]
    done = run(command, cwd=conf.parent, check=True)
    findings = json.loads(done.stdout.splitlines()[-1])["findings"]
    [beaten] = [finding for finding in findings if finding["code"] == "DK901"]
    assert beaten["location"]["file"] == str(conf / "train" / "base.yaml")


def test_without_hydra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['hydra'] = None\nimport debugkit.integrations.hydra"
    done = run([sys.executable, "-c", code])
    assert "needs hydra-core, which is not installed: pip install hydra-core" in done.stderr


def test_debugkit_itself_does_not_import_hydra() -> None:
    code = "import sys, debugkit, debugkit.rule as r; r.all_rules(); assert 'hydra' not in sys.modules"
    run([sys.executable, "-c", code], check=True)
