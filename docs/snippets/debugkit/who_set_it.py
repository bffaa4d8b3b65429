from debugkit.integrations.hydra import check_config, provenance

overrides = ["train.learning_rate=3e-4"]
print(provenance("conf", "config", overrides))

report = check_config(config_dir="conf", config_name="config", overrides=overrides, select="DK901")
print(report.findings[0].message)
