"""Makes the evidence in `handout/` from runs of the project as it is handed out.

    python -m labs.capstones.capstone_99_four_at_once.make_evidence

Less than a minute on two cores. Nothing else made these files: `train.log`, `loss.svg`, `rollout.png`, `config.diff`,
and the table of `runs.txt`.
"""

from __future__ import annotations

import copy
import difflib
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from PIL import Image

from labs.authoring.plots import BROKEN, new_figure, save

HERE = Path(__file__).parent
HANDOUT = HERE / "handout"
LINE = re.compile(r"step +(\d+) +loss (\S+)")
ONE = "  arms_at_once: 1\n"
FOUR = "  arms_at_once: 4\n"
SHOWN = (0, 3, 6, 10, 14, 20)
WIDTH = 150


def main() -> None:
    """Every file of the evidence."""
    torch.set_num_threads(1)
    sys.path.insert(0, str(HERE))
    import evaluate  # the project's own modules
    import train

    config = train.read_config()
    (HANDOUT / "config.diff").write_text(config_diff(), encoding="utf-8")
    lines, policy = trained(config)
    results = evaluate.episodes(policy, config)
    log = ["$ python train.py", *lines, *evaluate.report(results, config)]
    (HANDOUT / "train.log").write_text("\n".join(log) + "\n", encoding="utf-8")
    draw(lines)
    film(policy, config)
    longer = copy.deepcopy(config)
    longer["train"]["steps"] *= 2
    table = [f"{'evaluation':48}{''.join(f'{name:>7}' for name in config['arms'])}"]
    for words, own in evaluations(config).items():
        rates = evaluate.success_rates(evaluate.episodes(policy, own), own)
        table.append(row(words, rates))
    _, other = trained(longer)
    rates = evaluate.success_rates(evaluate.episodes(other, config), config)
    table.append(row("four at once, trained for twice as many steps", rates))
    (HANDOUT / "runs.txt").write_text("\n".join(table) + "\n", encoding="utf-8")


def trained(config: dict[str, Any]) -> tuple[list[str], Any]:
    """The log of a run, and its policy."""
    import train

    lines: list[str] = []
    policy = train.run(config, log=lines.append)
    return lines, policy


def evaluations(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What was evaluated with the policy of `train.log`."""
    alone, pairs, copies = (copy.deepcopy(config) for _ in range(3))
    alone["evaluate"]["arms_at_once"] = 1
    pairs["evaluate"]["arms_at_once"] = 2
    copies["arms"] = dict.fromkeys(config["arms"], config["arms"]["north"])
    return {
        "one at a time, as before the change": alone,
        "two at once": pairs,
        "four at once: the run of train.log": config,
        "four at once, each a copy of the north arm": copies,
    }


def row(words: str, rates: dict[str, float]) -> str:
    """One line of the table."""
    return f"{words:48}{''.join(f'{rate:7.0%}' for rate in rates.values())}"


def config_diff() -> str:
    """What the change made of the configuration."""
    after = (HERE / "config.yaml").read_text(encoding="utf-8")
    assert after.count(FOUR) == 1
    lines = difflib.unified_diff(
        after.replace(FOUR, ONE).splitlines(keepends=True),
        after.splitlines(keepends=True),
        "a/config.yaml",
        "b/config.yaml",
    )
    return "".join(lines)


def draw(lines: list[str]) -> None:
    """The loss of the log."""
    steps, losses = zip(*([float(one) for one in LINE.fullmatch(line).groups()] for line in lines), strict=True)
    figure, axes = new_figure("The run of train.log", "step", "loss")
    axes.plot(steps, losses, color=BROKEN, label="loss")
    axes.set_ylim(bottom=0)
    save(figure, HANDOUT / "loss.svg")


def film(policy: Any, config: dict[str, Any]) -> None:
    """The first wave: a row for each arm, a column for each of some steps."""
    import cell
    import evaluate

    rows: dict[str, list[Any]] = {}

    class Filmed(cell.Station):
        def reset(self, **given: Any) -> Any:
            found = super().reset(**given)
            rows[self.arm.name] = [self.env.render()]
            return found

        def step(self, action: Any) -> Any:
            found = super().step(action)
            rows[self.arm.name].append(self.env.render())
            return found

    with patch.object(evaluate, "Station", Filmed):
        evaluate.wave(policy, config, range(len(config["arms"])))
    height = WIDTH * 432 // 384
    sheet = Image.new("RGB", (WIDTH * len(SHOWN), height * len(rows)), "white")
    for line, pictures in enumerate(rows.values()):
        for column, step in enumerate(SHOWN):
            picture = Image.fromarray(pictures[min(step, len(pictures) - 1)]).resize((WIDTH, height))
            sheet.paste(picture, (column * WIDTH, line * height))
    sheet.convert("P", palette=Image.Palette.ADAPTIVE).save(HANDOUT / "rollout.png", optimize=True)


if __name__ == "__main__":
    main()
