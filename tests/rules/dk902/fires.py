"""Configurations with keys that a program does not read."""

from typing import Any

from omegaconf import OmegaConf

from debugkit.integrations.hydra import track_reads


def key_under_another_level() -> dict[str, Any]:
    """The program reads a key of `training` at the top level, where it does not exist, and gets its default."""
    cfg = track_reads(OmegaConf.create({"training": {"use_imagenet_stats": True, "steps": 10}}))
    assert cfg.training.steps == 10
    assert cfg.get("use_imagenet_stats", False) is False
    message = "`training.use_imagenet_stats` is never read. The program reads `use_imagenet_stats` instead"
    return {"config": {"cfg": cfg}, "expect": {"severity": "warning", "message": message}}


def part_that_nothing_looks_at() -> dict[str, Any]:
    """The scheduler was deleted, but its configuration was kept."""
    cfg = track_reads(OmegaConf.create({"lr": 1e-3, "scheduler": {"warm_up": 20, "final": 0.05}, "name": "run"}))
    assert (cfg.lr, cfg["name"]) == (1e-3, "run")
    return {
        "config": {"cfg": cfg},
        "expect": {"severity": "info", "message": "2 of 4 keys have not been read so far: `scheduler.*`"},
    }


def printing_is_no_reading() -> dict[str, Any]:
    """Every script prints its configuration, saves it and passes a copy to the logger."""
    cfg = track_reads(OmegaConf.create({"lr": 1e-3, "unused": 1}))
    str(cfg)
    OmegaConf.to_yaml(cfg)
    OmegaConf.to_container(cfg)
    assert cfg == OmegaConf.create({"lr": 1e-3, "unused": 1})
    assert cfg.lr == 1e-3
    return {"config": {"cfg": cfg}, "expect": {"message": "`unused` has not been read so far"}}
