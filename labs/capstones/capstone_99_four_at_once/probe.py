"""What the grader and `lab run` measure. Runs with the learner's project, in the sandboxed child."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import yaml
from torch import Tensor, nn

from labs.vla.dataset import Batch
from labs.vla.policy import Policy, PolicyOutput
from labs.vla.tabletop import Tabletop


def settings(learner: Any) -> dict[str, Any]:
    """The configuration as the file has it."""
    return yaml.safe_load(learner.config.read_text(encoding="utf-8"))


def acted(
    learner: Any, config: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], law: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The commands of a controller of all arms at each step, and the inputs of each call of its policy."""
    policy = ByState(law)
    controller = learner.controller.Controller(policy, learner.cell.arms_of(config))
    commands = []
    for step in steps:
        seen = {**step["observation"], "image": step["observation"]["image"].numpy()}
        seen["state"] = seen["state"].numpy()
        commands.append(torch.as_tensor(controller.act(step["active"], seen)))
    return {"commands": commands, "calls": policy.calls}


def evaluated(learner: Any, config: Mapping[str, Any], law: Mapping[str, Tensor]) -> dict[str, Any]:
    """The evaluation of a policy that sees only the arm's position: results, rates, and how often what was asked."""
    policy = ByState(law)
    with _steps_of_tables() as steps:
        results = learner.evaluate.episodes(policy, config)
    return {
        "success": [bool(one.success) for one in results],
        "wrong_block": [bool(one.wrong_block) for one in results],
        "steps": [int(one.steps) for one in results],
        "rates": dict(learner.evaluate.success_rates(results, config)),
        "planned": [len(call["state"]) for call in policy.calls],
        "executed": len(steps),
    }


def trained_on(learner: Any, config: Mapping[str, Any]) -> list[Batch]:
    """The batches of a run."""
    return [dict(batch) for batch in learner.data.batches(config)]


def success(learner: Any, seed: int) -> dict[str, Any]:
    """The rates after a run of the project, with tables and demonstrations of this seed: one at a time and at once."""
    config = settings(learner)
    config["seed"] = seed
    config["evaluate"]["first_seed"] = 500_000 + 1000 * (seed % 100)
    policy = learner.train.run(config, log=_quiet)
    rates = {}
    for many in (1, 4):
        config["evaluate"]["arms_at_once"] = many
        results = learner.evaluate.episodes(policy, config)
        rates[str(many)] = dict(learner.evaluate.success_rates(results, config))
    return rates


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a new policy, and a batch of the run."""
    config = settings(learner)
    policy = Policy.from_base(seed=config["seed"])
    return {
        "model": policy,
        "batch": next(iter(learner.data.batches(config))),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=config["train"]["learning_rate"]),
    }


def symptom(learner: Any) -> None:
    """The project's run and its evaluation: what `lab run 99` shows."""
    config = settings(learner)
    print("$ python train.py", flush=True)
    policy = learner.train.run(config, log=lambda line: print(line, flush=True))
    print(*learner.evaluate.report(learner.evaluate.episodes(policy, config), config), sep="\n", flush=True)


class ByState(nn.Module):
    """A policy whose plans (B, H, 3) are an affine function of the arm's state. It notes the inputs of each call."""

    def __init__(self, law: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.gain, self.bias = law["gain"], law["bias"]
        self.calls: list[Batch] = []
        self.device = torch.device("cpu")

    def predict(self, batch: Batch) -> Tensor:
        """Plans for the states (B, 3) of a batch: `gain` is (3, H * 3), `bias` (H, 3)."""
        self.calls.append({name: value.clone() for name, value in batch.items()})
        return (batch["state"] @ self.gain).unflatten(-1, self.bias.shape) + self.bias

    def forward(self, **batch: Tensor) -> PolicyOutput:
        """The same as `predict`, in Hugging Face's form."""
        return PolicyOutput(action=self.predict(batch))


@contextmanager
def _steps_of_tables() -> Iterator[list[int]]:
    """One entry for every step of a table in the block."""
    steps: list[int] = []
    original = Tabletop.step

    def step(table: Tabletop, action: Any) -> Any:
        steps.append(1)
        return original(table, action)

    with patch.object(Tabletop, "step", step):
        yield steps


def _quiet(_: str) -> None:
    """Print nothing."""
