"""Programs that read their whole configuration, each in a different way."""

from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from debugkit.integrations.hydra import track_reads


def by_attribute_and_item() -> dict[str, Any]:
    """Attributes, items and get()."""
    cfg = _tracked({"lr": 1e-3, "model": {"width": 64, "layers": [1, 2]}})
    assert (cfg.lr, cfg["model"].width, list(cfg.model["layers"])) == (1e-3, 64, [1, 2])
    return {"config": {"cfg": cfg}}


def by_unpacking_and_iterating() -> dict[str, Any]:
    """`**cfg.model`, `.items()`, and converting a part."""
    cfg = _tracked({"model": {"width": 64, "depth": 2}, "optimizer": {"lr": 0.1}, "data": {"seed": 1}})
    assert dict(**cfg.model) == {"width": 64, "depth": 2}
    assert dict(cfg.optimizer.items()) == {"lr": 0.1}
    assert OmegaConf.to_container(cfg.data) == {"seed": 1}
    return {"config": {"cfg": cfg}}


def by_instantiating() -> dict[str, Any]:
    """Hydra copies the part of the config and reads the copy."""
    cfg = _tracked({"optimizer": {"_target_": "builtins.dict", "lr": "${lr}", "betas": {"first": 0.9}}, "lr": 0.1})
    assert instantiate(cfg.optimizer)["lr"] == 0.1
    return {"config": {"cfg": cfg}}


def through_an_interpolation() -> dict[str, Any]:
    """Reading `head.width` reads `width` through an interpolation."""
    cfg = _tracked({"width": 64, "head": {"width": "${width}"}})
    assert cfg.head.width == 64
    return {"config": {"cfg": cfg}}


def through_a_copy_and_a_merge() -> dict[str, Any]:
    """A copy of a tracked config is tracked too."""
    cfg = _tracked({"lr": 1e-3, "steps": 10})
    merged = OmegaConf.merge(cfg, {"extra": 1})
    assert (merged.lr, merged.steps) == (1e-3, 10)
    return {"config": {"cfg": cfg}}


def whole_config_as_a_dict() -> dict[str, Any]:
    """Reads of the resulting dict are not recorded."""
    cfg = _tracked({"lr": 1e-3, "unused": 1})
    assert OmegaConf.to_container(cfg, resolve=True) == {"lr": 1e-3, "unused": 1}
    return {"config": {"cfg": cfg}, "expect": {"not_examined": "converted to plain data"}}


def not_tracked() -> dict[str, Any]:
    """Without track_reads no reads are recorded."""
    return {"config": {"cfg": OmegaConf.create({"lr": 1})}, "expect": {"not_examined": "was not tracked"}}


def _tracked(values: dict[str, Any]) -> DictConfig:
    return track_reads(OmegaConf.create(values))
