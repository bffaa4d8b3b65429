"""Faults of configuration and libraries."""

from __future__ import annotations

from labs.mystery.operators.operator import POLICY, TRAIN, Edit, Operator

FRAMEWORKS = (
    Operator(
        "file_wins",
        "frameworks",
        2,
        "DK901",
        "recipe",
        "recipe",
        "A setting on the command line has no effect.",
        "The file overrides the command line, because it is merged last.",
        (Edit(TRAIN, "given = {**file, **command_line}", "given = {**command_line, **file}"),),
    ),
    Operator(
        "misspelt_settings",
        "frameworks",
        2,
        "DK902",
        "recipe",
        "recipe",
        "A misspelt setting is accepted and has no effect.",
        "Unknown names are skipped where they must be refused.",
        (
            Edit(
                TRAIN,
                '    for name in given:\n        if name not in defaults:\n            raise KeyError(f"there is no setting {name}")\n',
                "",
                (
                    (
                        "{name: $convert(value, defaults[name]) for name, value in given.items()}",
                        "{name: $convert(given[name], defaults[name]) for name in defaults if name in given}",
                    ),
                ),
            ),
        ),
    ),
    Operator(
        "false_is_true",
        "frameworks",
        2,
        "DK903",
        "recipe",
        "recipe",
        "A switch that is turned off in the file stays on.",
        "A text is converted with `bool()`, and every text that is not empty is true.",
        (Edit(TRAIN, 'return str(value).lower() in ("true", "yes", "1")', "return bool(value)"),),
    ),
    Operator(
        "numbers_stay_text",
        "frameworks",
        1,
        "DK903",
        "recipe",
        "recipe",
        "A run whose learning rate is in the file raises an error in the optimizer.",
        "The values are passed on as they are, and a number in a file can be a text.",
        (
            Edit(
                TRAIN,
                "    return type(default)(value)",
                "    return value if isinstance(default, float) else type(default)(value)",
            ),
        ),
    ),
    Operator(
        "misspelt_heads",
        "frameworks",
        2,
        "DK902",
        "tower",
        "outputs",
        "Changing the number of attention heads changes nothing.",
        "The key of the heads is misspelt; the library's configuration keeps it and never reads it.",
        (
            Edit(
                POLICY,
                "                num_attention_heads=2,\n                image_size",
                "                num_heads=2,\n                image_size",
                (("$width: int = 24", "$width: int = 24"),),
            ),
        ),
    ),
    Operator(
        "sizes_of_the_library",
        "frameworks",
        1,
        "DK902",
        "tower",
        "checkpoint",
        "The policy has far more parameters than its configuration says, and checkpoints do not load.",
        "A key of the tower's configuration is misspelt, so the library's default is used.",
        (Edit(POLICY, "                num_hidden_layers=2,\n", "                num_layers=2,\n"),),
    ),
    Operator(
        "whole_numbers_become_fractions",
        "frameworks",
        2,
        "DK903",
        "recipe",
        "recipe",
        "A setting that counts steps is printed as 7.0.",
        "Every number is converted with `float()`, also one whose default is a whole number.",
        (Edit(TRAIN, "    return type(default)(value)", "    return float(value)"),),
    ),
)
