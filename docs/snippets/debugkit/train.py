import hydra

from debugkit.integrations.hydra import check_config, track_reads


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    cfg = track_reads(cfg)
    print(cfg.seed, cfg.train.batch_size, cfg.train.learning_rate, cfg.train.get("warm_up", 0))
    report = check_config(cfg, directories={"checkpoints": "checkpoints"})
    for finding in report.findings:
        print(finding.code, finding.name)


if __name__ == "__main__":
    main()
