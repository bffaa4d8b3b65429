from omegaconf import OmegaConf

from debugkit.integrations.hydra import check_config, track_reads

cfg = track_reads(
    OmegaConf.create({"training": {"use_imagenet_stats": True, "steps": 10}})
)
steps = cfg.training.steps
normalise = cfg.training.get("use_imagenet_stats", False)
report = check_config(cfg, select="DK902")
print(report)
