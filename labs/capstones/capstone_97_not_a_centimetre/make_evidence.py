"""Makes what is handed out from a real run of the project as it is handed out.

    python labs/capstones/capstone_97_not_a_centimetre/make_evidence.py

Writes `train.log`, `evaluate.log`, `loss.svg` and `rollout.gif` into `handout/`. `config.diff` is written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import yaml

from labs.authoring.plots import BROKEN, REFERENCE, new_figure, save
from labs.vla.film import episode_gif

HERE = Path(__file__).parent
HANDOUT = HERE / "handout"
EPISODE = 10_003


def main() -> None:
    """One run with `config.yaml` on one thread."""
    torch.set_num_threads(1)
    sys.path.insert(0, str(HERE))
    import evaluate  # the project's own modules
    import train

    config = yaml.safe_load((HERE / "config.yaml").read_text(encoding="utf-8"))
    rows: list[tuple[int, float, float]] = []
    checkpoint = train.train(config, lambda *row: rows.append(row))
    lines = [" step     loss   held-out loss", *(f"{step:5d} {loss:8.3f} {held:15.3f}" for step, loss, held in rows)]
    (HANDOUT / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = evaluate.evaluate(checkpoint)
    said = f"{result.success_rate:.0%} of {len(result.success)} episodes, {result.final_distance:.2f} m left (median)"
    (HANDOUT / "evaluate.log").write_text(said + "\n", encoding="utf-8")
    figure, axes = new_figure("The run of the new arm", "step", "loss")
    axes.plot([step for step, _, _ in rows], [loss for _, loss, _ in rows], color=BROKEN, label="training")
    axes.plot([step for step, _, _ in rows], [held for *_, held in rows], color=REFERENCE, label="held-out")
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, HANDOUT / "loss.svg")
    policy = evaluate.load(checkpoint)
    units = config["data"]["controller_units"]
    predict = policy.predict
    policy.predict = lambda batch: torch.from_numpy(evaluate.scaled(predict(batch).numpy(), 1 / units))
    episode_gif(HANDOUT / "rollout.gif", policy, seed=EPISODE, width=300)


if __name__ == "__main__":
    main()
