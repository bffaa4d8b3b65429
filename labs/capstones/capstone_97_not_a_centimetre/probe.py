"""What the grader and `lab run` measure. Runs with the learner's project, in the sandboxed child."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import yaml
from torch import Tensor, nn

import labs.vla.dataset
from labs.vla.dataset import Batch, Frames, batches
from labs.vla.policy import Policy


def settings(learner: Any) -> dict[str, Any]:
    """`config.yaml` as it is."""
    found: dict[str, Any] = yaml.safe_load(Path(learner.train.__file__).with_name("config.yaml").read_text("utf-8"))
    return found


def short_run(learner: Any, config: dict[str, Any]) -> dict[str, Any]:
    """A run of a few updates: its checkpoint's `model`, the loaded policy's state, and what `load` drew and gives."""
    with _eager_compiler():
        checkpoint = learner.train.train(copy.deepcopy(config))
    drawn: list[int] = []
    with patch.object(labs.vla.dataset, "sample_moments", _counting(labs.vla.dataset.sample_moments, drawn)):
        policy = learner.evaluate.load(copy.deepcopy(checkpoint))
    return {
        "entries": sorted(checkpoint),
        "config": checkpoint["config"],
        "model": dict(checkpoint["model"]),
        "loaded": {name: value.clone() for name, value in policy.state_dict().items()},
        "training": policy.training,
        "frames_read": sum(drawn),
    }


def loaded_prediction(learner: Any, config: dict[str, Any], batch: Batch) -> dict[str, Any]:
    """What the loaded policy of a short run predicts, in its units and in metres, and its state."""
    with _eager_compiler():
        checkpoint = learner.train.train(copy.deepcopy(config))
    policy = learner.evaluate.load(checkpoint)
    units = config["data"]["controller_units"]
    return {
        "state": dict(policy.state_dict()),
        "action": policy.predict(batch),
        "metres": learner.evaluate.in_metres(policy, units, batch),
    }


def loaded_without(learner: Any, config: dict[str, Any], part: str) -> str:
    """The kind of error with which a checkpoint is refused whose averaged weights lack those of `part`; or "none"."""
    with _eager_compiler():
        checkpoint = learner.train.train(copy.deepcopy(config))
    checkpoint["average"] = {name: value for name, value in checkpoint["average"].items() if part not in name}
    try:
        learner.evaluate.load(checkpoint)
    except Exception as error:
        return type(error).__name__
    return "none"


def averaged(
    learner: Any, start: list[Tensor], way: list[list[Tensor]], decay: float, warm_up: bool, frozen: list[int]
) -> dict[str, Any]:
    """The average of a model's weights after each of some updates, and the model's own weights at the end."""
    model = nn.ParameterList([nn.Parameter(value.clone()) for value in start])
    for index in frozen:
        model[index].requires_grad_(False)
    average = learner.average.WeightAverage(model, decay, warm_up)
    states = []
    for step in way:
        with torch.no_grad():
            for parameter, value in zip(model, step, strict=True):
                parameter.copy_(value)
        average.update(model)
        states.append([average.state()[str(index)] for index in range(len(start))])
    return {
        "averages": states,
        "weights": [parameter.detach().clone() for parameter in model],
        "needs_grad": any(value.requires_grad for value in average.state().values()),
    }


def data(learner: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The actions of the training and held-out frames, and their statistics."""
    frames, held_out = learner.data.training_frames(config), learner.data.held_out_frames(config)
    found = learner.data.statistics(frames)
    return {**_actions(frames, "training"), **_actions(held_out, "held-out"), "mean": found.mean, "std": found.std}


def calls(learner: Any, config: dict[str, Any]) -> list[list[Any]]:
    """Of each call of the policy in a run: whether it is in training mode, and whether gradients are recorded."""
    seen: list[list[Any]] = []
    forward = Policy.forward

    def noted(policy: Policy, *given: Any, **named: Any) -> Any:
        seen.append([policy.training, torch.is_grad_enabled()])
        return forward(policy, *given, **named)

    with patch.object(Policy, "forward", noted), _eager_compiler():
        learner.train.train(copy.deepcopy(config), lambda *_: None)
    return seen


def log(learner: Any, config: dict[str, Any]) -> list[tuple[int, float, float]]:
    """What a run reports: step, loss and held-out loss."""
    reported: list[tuple[int, float, float]] = []
    with _eager_compiler():
        learner.train.train(copy.deepcopy(config), lambda *values: reported.append(values))
    return reported


def success(learner: Any, seed: int, episodes: int) -> dict[str, Tensor]:
    """A whole run with `config.yaml`, and the success of each closed-loop episode."""
    config = settings(learner) | {"seed": seed}
    result = learner.evaluate.evaluate(learner.train.train(config), episodes, first_seed=500_000 + seed)
    return {"success": torch.from_numpy(result.success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the policy and a batch, as training sees them."""
    config = settings(learner)
    frames = learner.data.training_frames({**config, "train": {**config["train"], "steps": 1}})
    policy = learner.model.build(config, learner.data.statistics(frames))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": next(batches(frames, 32, steps=1, seed=97)), "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """One run with `config.yaml` and its evaluation: the output of `lab run 97`."""
    print("$ python train.py")
    print(" step     loss   held-out loss")
    checkpoint = learner.train.train(
        settings(learner), lambda step, loss, held_out: print(f"{step:5d} {loss:8.3f} {held_out:15.3f}", flush=True)
    )
    print("\n$ python evaluate.py")
    result = learner.evaluate.evaluate(checkpoint)
    print(f"{result.success_rate:.0%} of {len(result.success)} episodes, {result.final_distance:.2f} m left (median)")


def _actions(frames: Frames, name: str) -> dict[str, Tensor]:
    return {
        f"{name}_actions": torch.from_numpy(frames.action),
        f"{name}_padding": torch.from_numpy(frames.action_is_pad),
    }


def _counting(function: Any, drawn: list[int]) -> Any:
    def counted(rng: Any, count: int) -> Any:
        drawn.append(count)
        return function(rng, count)

    return counted


@contextmanager
def _eager_compiler() -> Iterator[None]:
    """Whatever the configuration says of compiling, the wrapper is there and its model runs eagerly."""
    real = torch.compile
    stance: Mapping[str, Any] = {"new": lambda *_, **__: None}
    with (
        patch.object(torch, "compile", partial(real, backend="eager")),
        patch.object(torch.compiler, "set_stance", **stance),
    ):
        torch._dynamo.set_stance("force_eager")
        yield
