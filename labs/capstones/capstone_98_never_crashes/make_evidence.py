"""Makes the evidence in `handout/` from runs of the project as it is handed out.

    python -m labs.capstones.capstone_98_never_crashes.make_evidence

About a minute on two cores. Nothing else made these files: `train.log`, `loss.svg`, `rollout.png`, `config.diff`, and
the table of `runs.txt`.
"""

from __future__ import annotations

import copy
import difflib
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from labs.authoring.plots import new_figure, save
from labs.vla.film import contact_sheet
from labs.vla.rollout import Predict

HERE = Path(__file__).parent
HANDOUT = HERE / "handout"
FILMED = (980_000, 980_001)
LINE = re.compile(r"step +(\d+) +loss (\S+) +lr (\S+)")


def main() -> None:
    """Every file of the evidence."""
    sys.path.insert(0, str(HERE))
    import evaluate
    import train

    config = train.read_config()
    (HANDOUT / "config.diff").write_text(config_diff(), encoding="utf-8")
    lines, policy = trained(config)
    rates = evaluate.success_rates(policy, config)
    log = ["$ python train.py", *lines, *(f"{name} success {rate:.0%}" for name, rate in rates.items())]
    (HANDOUT / "train.log").write_text("\n".join(log) + "\n", encoding="utf-8")
    draw(lines)
    policy.predict = controlled(policy, "south", config)
    contact_sheet(HANDOUT / "rollout.png", {"south, after the run": policy}, seeds=FILMED, columns=6)
    table = [f"{'run':58}north   south"]
    for words, (own, evaluated) in other_runs(config).items():
        _, other = trained(own)
        seen = evaluate.success_rates(other, evaluated)
        table.append(row(words, seen))
    table.insert(2, row("the run of train.log", rates))
    (HANDOUT / "runs.txt").write_text("\n".join(table) + "\n", encoding="utf-8")


def trained(config: dict[str, Any]) -> tuple[list[str], Any]:
    """The log of a run, and its policy."""
    import train

    lines: list[str] = []
    policy = train.run(config, log=lines.append)
    return lines, policy


def other_runs(config: dict[str, Any]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What was tried: the configuration of the run, and that of its evaluation."""
    alone, more, lit = (copy.deepcopy(config) for _ in range(3))
    del alone["stations"]["south"]
    more["stations"]["south"]["frames"] *= 2
    lit["stations"]["south"]["light"] = 1.0
    return {
        "before the change: the north station alone": (alone, alone),
        "twice as many demonstrations of the south station": (more, more),
        "as train.log, evaluated with a brighter lamp in the south": (config, lit),
    }


def row(words: str, rates: dict[str, float]) -> str:
    """One line of the table."""
    cells = (f"{rates[name]:5.0%}" if name in rates else "    –" for name in ("north", "south"))
    return f"{words:58}{'   '.join(cells)}"


def controlled(policy: Any, name: str, config: dict[str, Any]) -> Predict:
    """The policy as the station runs it."""
    import data
    import evaluate

    station = data.stations_of(config)[name]
    return evaluate.controller(_Unfilmed(policy), name, station)


class _Unfilmed:
    """The policy's own `act`; its `predict` is replaced for the film."""

    def __init__(self, policy: Any) -> None:
        self.act = policy.act


def config_diff() -> str:
    """What the change made of the configuration."""
    after = (HERE / "config.yaml").read_text(encoding="utf-8")
    south = re.search(r"  south:\n(?:    .*\n)+", after)
    assert south is not None
    before = after.replace(south[0], "").replace("the two stations", "the north station")
    assert "south" not in yaml.safe_load(before)["stations"]
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), "a/config.yaml", "b/config.yaml"
    )
    return "".join(lines)


def draw(lines: list[str]) -> None:
    """Loss and learning rate of the log."""
    found = [[float(one) for one in match.groups()] for match in map(LINE.fullmatch, lines) if match]
    steps, losses, rates = zip(*found, strict=True)
    figure, axes = new_figure("The run of train.log", "step", "loss")
    axes.plot(steps, losses, label="loss")
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.plot(steps, rates, color="tab:gray", linestyle="--", label="learning rate")
    other.set_ylabel("learning rate")
    other.set_ylim(bottom=0)
    axes.legend([*axes.lines, *other.lines], ["loss", "learning rate"])
    save(figure, HANDOUT / "loss.svg")


if __name__ == "__main__":
    main()
