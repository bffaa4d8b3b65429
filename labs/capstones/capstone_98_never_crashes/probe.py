"""What the grader and `lab run` measure. Runs with the learner's project, in the sandboxed child."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import yaml
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from labs.vla.dataset import Batch, Frames


def settings(learner: Any) -> dict[str, Any]:
    """The configuration as the file has it."""
    return yaml.safe_load(learner.config.read_text(encoding="utf-8"))


def fitted(
    learner: Any,
    batches: Sequence[Batch],
    stations: Sequence[str],
    action: Tensor,
    updates: int,
    given: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """One call of `fit` with these batches; all stations have the statistics of `action` (N, H, 4)."""
    frames = _frames(action)
    policy = learner.model.build_policy(dict.fromkeys(stations, frames), seed)
    with _rates() as rates, torch.random.fork_rng(devices=()):
        try:
            losses = learner.train.fit(policy, zip(stations, batches, strict=True), updates, given, log=_quiet)
            raised = None
        except Exception as error:
            losses, raised = [], type(error).__name__
    return {"raised": raised, "losses": losses, "rates": rates, "weights": _weights(policy)}


def run_rates(learner: Any, config: Mapping[str, Any]) -> list[float]:
    """The learning rate of every update of a run with this configuration."""
    with _rates() as rates:
        learner.train.run(config, log=_quiet)
    return rates


def statistics(learner: Any, action: Tensor, is_pad: Tensor, values: Tensor) -> dict[str, Tensor]:
    """The statistics of frames with these actions, and what they make of `values` in both directions."""
    found = learner.normalization.StationStatistics.of(_frames(action, is_pad))
    return {"normalized": found.normalize(values), "unnormalized": found.unnormalize(values)}


def loss_at(learner: Any, batch: Batch, action: Mapping[str, Tensor], station: str, seed: int) -> dict[str, Any]:
    """The loss of a new policy on a batch of one station, of which the actions are given, and whether it trains."""
    policy = learner.model.build_policy({name: _frames(one) for name, one in action.items()}, seed)
    loss = policy.loss_at(station, batch)
    loss.backward()
    gradients = [one.grad for one in policy.parameters() if one.grad is not None]
    return {"loss": loss.detach(), "finite": all(bool(one.isfinite().all()) for one in gradients)}


def movements(learner: Any, batch: Batch, action: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The chunks (B, H, 3) that a new policy gives each station's arm for the same rendered pictures."""
    stations = learner.data.stations_of(config)
    policy = learner.model.build_policy({name: _frames(one) for name, one in action.items()}, config["seed"]).eval()
    return {name: learner.evaluate.controller(policy, name, stations[name])(batch) for name in stations}


def streamed(learner: Any, config: Mapping[str, Any]) -> list[tuple[str, Batch]]:
    """All batches of a run with this configuration, each with the name of its station."""
    stations = learner.data.stations_of(config)
    frames = {name: station.record() for name, station in stations.items()}
    mixture = learner.data.Mixture(stations, frames, config["train"]["batch_size"])
    return [(name, dict(batch)) for name, batch in mixture.stream(config["train"]["epochs"])]


def success(learner: Any, seed: int) -> dict[str, Tensor]:
    """The successes (N,) at each station after a run of the project, with demonstrations and tables of this seed."""
    config = settings(learner)
    config["seed"] = seed
    for number, station in enumerate(config["stations"].values()):
        station["seed"] = 10 * seed + number
    config["evaluate"]["first_seed"] = 500_000 + seed
    policy = learner.train.run(config, log=_quiet)
    results = {name: learner.evaluate.episodes(policy, name, config) for name in config["stations"]}
    return {name: torch.from_numpy(result.success) for name, result in results.items()}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a new policy and a batch of the south station."""
    config = settings(learner)
    stations = learner.data.stations_of(config)
    frames = {name: station.record() for name, station in stations.items()}
    mixture = learner.data.Mixture(stations, frames, config["train"]["batch_size"])
    policy = learner.model.build_policy(frames, config["seed"])
    station, batch = next((name, batch) for name, batch in mixture.stream(1) if name == "south")
    return {
        "model": policy,
        "batch": batch,
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
        "loss_fn": lambda model, given: model.loss_at(station, given),
    }


def symptom(learner: Any) -> None:
    """The project's run and its evaluation: what `lab run 98` shows."""
    config = settings(learner)
    print("$ python train.py", flush=True)
    try:
        policy = learner.train.run(config, log=lambda line: print(line, flush=True))
    except learner.train.NonFiniteError as error:
        print(f"NonFiniteError: {error}")
        return
    for station, rate in learner.evaluate.success_rates(policy, config).items():
        print(f"{station} success {rate:.0%}", flush=True)


def _frames(action: Tensor, is_pad: Tensor | None = None) -> Frames:
    """Frames with these actions (N, H, A); nothing else of them is read."""
    count, horizon = action.shape[:2]
    pad = torch.zeros(count, horizon, dtype=torch.bool) if is_pad is None else is_pad
    image, state = torch.zeros(count, 64, 64, 3, dtype=torch.uint8), torch.zeros(count, 3)
    return Frames(image.numpy(), state.numpy(), ("",) * count, action.numpy(), pad.numpy())


@contextmanager
def _rates() -> Iterator[list[float]]:
    """The learning rate of every update that is made in the block."""
    rates: list[float] = []

    def note(optimizer: Optimizer, *_: Any) -> None:
        rates.append(float(optimizer.param_groups[0]["lr"]))

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield rates
    finally:
        hook.remove()


def _weights(policy: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in policy.named_parameters()}


def _quiet(_: str) -> None:
    """Print nothing."""
