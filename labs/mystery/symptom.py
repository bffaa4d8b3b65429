"""What `lab run` shows of a mystery: some numbers of a run, beside those of the healthy program.

It is the second half of the probe, which is one file in the learner's workspace: what follows the imports is appended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from labs.mystery.probe import (
    NAMES,
    OBSERVATION,
    _examples,
    _fresh,
    _held,
    _numbers,
    _trainer,
    _without_dropout,
    combine,
    recipe,
    resume,
)

BEFORE: dict[str, str] = {}
"""What the rows said in the last good version."""


def symptom(learner: Any) -> None:
    """Prints what a run shows, beside what the last good version showed: `lab run`."""
    now, first = summary(learner)
    print(f"{'':38}  {'now':>26}  {'before':>26}")
    for name, value in now.items():
        before = BEFORE.get(name, "")
        print(f"{name:38}  {value:>26}  {before:>26}{'' if value == before else '  *'}", flush=True)
    if first is not None:
        print(flush=True)
        raise first


def summary(learner: Any) -> tuple[dict[str, str], Exception | None]:
    """The rows of the symptom, each as a text, and the first exception."""
    rows: dict[str, str] = {}
    first: Exception | None = None
    for name, row in _ROWS.items():
        torch.manual_seed(5)
        try:
            rows[name] = row(learner)
        except Exception as error:
            rows[name] = type(error).__name__
            first = first or error
    return rows, first


def _run_row(learner: Any) -> str:
    trainer = _trainer(learner, _fresh(learner))
    trainer.run(_examples(12))
    losses = _numbers(trainer.history)
    return f"{losses[0]:.4f} to {losses[-1]:.4f}"


def _trained_row(learner: Any) -> str:
    policy = _fresh(learner)
    _trainer(learner, policy).run(_examples(12))
    return f"{float(getattr(learner.train, NAMES['evaluate'])(policy, _examples(3, seed=9))):.4f}"


def _padding_row(learner: Any) -> str:
    policy, batch = _fresh(learner).eval(), _examples(1)[0]
    more = (3, 0) if NAMES["the_padding"] == "left" else (0, 3)
    wide = batch | {name: F.pad(batch[name], more) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        return f"{float(policy(**batch)):.4f}, {float(policy(**wide)):.4f}"


def _alone_row(learner: Any) -> str:
    policy, batch = _fresh(learner), _examples(1)[0]
    chunk = policy.predict(**{name: batch[name][:1] for name in OBSERVATION})
    return ", ".join(f"{one:.3f}" for one in chunk[0, 0].tolist())


def _robot_row(learner: Any) -> str:
    policy, batch = _fresh(learner), _examples(1)[0]
    runner = getattr(learner.policy, NAMES["Runner"])(policy)
    for number in (1, 2):
        runner.act(batch["image"][number], "move left", batch["state"][number])
    runner.reset()
    action = runner.act(batch["image"][0], "take the red", batch["state"][0])
    return ", ".join(f"{one:.3f}" for one in action.tolist())


def _resumed_row(learner: Any) -> str:
    batches, policy = _examples(8), _fresh(learner)
    with _without_dropout():
        whole = _trainer(learner, policy)
        whole.run(batches)
        losses = resume(learner, _fresh(learner).state_dict(), batches, 4)["losses"]
    return f"{_numbers(whole.history)[-1]:.4f}, {losses[-1]:.4f}"


def _order_row(learner: Any) -> str:
    function, share = getattr(learner.train, NAMES["epoch_order"]), getattr(learner.train, NAMES["rank_share"])
    orders = [list(function(7, 3, epoch)) for epoch in (0, 1)]
    return " ".join("".join(map(str, share(one, rank, 2))) for one in orders for rank in (0, 1))


def _empty_row(learner: Any) -> str:
    policy, batch = _fresh(learner).eval(), _examples(1)[0]
    batch["attention_mask"][0] = 0
    with torch.no_grad():
        return f"{float(policy(**batch)):.4f}"


def _scaled_row(learner: Any) -> str:
    batch = _examples(1)[0]
    batch["action"][..., 2] = 0.5
    scaler = getattr(learner.policy, NAMES["fit_scaler"])(batch["action"], batch["action_is_pad"])
    one = scaler.normalize(batch["action"])[0, 0]
    return ", ".join(f"{number:.3f}" for number in (*one.tolist(), float(scaler.unnormalize(one)[0])))


def _held_row(learner: Any) -> str:
    trainer = _trainer(learner, _fresh(learner))
    counts = []
    for _ in range(2):
        trainer.run(_examples(4))
        held = _held([trainer, learner])
        counts.append(f"{held['tensors']} and {held['nodes']}")
    return ", ".join(counts)


def _settings_row(learner: Any) -> str:
    name = NAMES["rate"]
    found = recipe(learner, {name: "2e-4", "shuffle": "false"}, {name: "5e-4"}, f"{name}s")["settings"]
    return f"{found['rate']}, {found['shuffle']}"


def _processes_row(learner: Any) -> str:
    return ", ".join(f"{one:.3f}" for one in combine(learner, [[1.0, 2.0], [1.0, 0.0]], [[6, 2], [5, 0]]))


_ROWS: dict[str, Callable[[Any], str]] = {
    "loss, first and 12th batch": _run_row,
    "validation loss after 12 batches": _trained_row,
    "loss with 6 and with 9 columns of text": _padding_row,
    "first action, one frame alone": _alone_row,
    "first action on the robot, 2nd episode": _robot_row,
    "8th loss, uninterrupted and resumed": _resumed_row,
    "order, epochs 0 and 1, 2 processes": _order_row,
    "loss with an empty instruction": _empty_row,
    "an action scaled, and back": _scaled_row,
    "tensors and graph nodes held": _held_row,
    "rate and shuffle, as set": _settings_row,
    "loss of two processes": _processes_row,
}
