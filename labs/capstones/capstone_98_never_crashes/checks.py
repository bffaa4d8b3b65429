"""What must hold for a run over several stations. Runs in the grader's process, without the learner's files.

The references are written here from the project's docstrings, on top of the healthy policy. Each fault is judged on
inputs on which the other faults have no effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_equal, expect_success_rate, random_batch, random_padding
from labs.project_settings import expect_settings
from labs.reference_training import train_step
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

ACTION_DIM, WRIST = 4, 2
WRIST_RANGE, MAX_STEP = 0.6, 0.1
BOUND = 1e-4
"""The largest difference of two weights, losses or rates that are the same up to rounding."""
EPISODES = 50
SUCCESS_BAR = 0.7

SETTINGS = {
    "seed": 98,
    "stations": {
        "north": {"frames": 640, "seed": 9801, "units_per_metre": 1, "light": 1.0, "wrist_locked_at": None},
        "south": {"frames": 1280, "seed": 9802, "units_per_metre": 100, "light": 0.9, "wrist_locked_at": 0.35},
    },
    "train": {
        "batch_size": 32,
        "epochs": 5,
        "learning_rate": 2e-3,
        "warm_up": 20,
        "final": 0.01,
        "max_left_out": 8,
        "log_every": 15,
    },
    "evaluate": {"episodes": 50, "first_seed": 980_000, "execute": 2},
}


@check(
    kind="behaviour",
    title="A run leaves out no more steps than it may",
    property="If more than `max_left_out` steps of a run have a loss that is not finite, the run must end with NonFiniteError at the first step beyond this number, wherever in the run these steps are.",
    instrument="python -c 'import train; from torch.optim.optimizer import register_optimizer_step_pre_hook as hook; made = []; hook(lambda *_: made.append(1)); train.run(train.read_config()); print(len(made))'",
)
def test_run_ends_beyond_its_limit(submission: Submission, rng: Rng) -> None:
    limit = rng.integer(1, 4)
    spread = [step % 2 == 1 for step in range(2 * limit + 6)]
    pairs = [step % 3 != 0 for step in range(3 * limit + 3)]
    block = [False, False, *[True] * (limit + 2), False]
    for words, bad, may in (
        ("every second step", spread, limit),
        ("two steps of three", pairs, limit),
        ("steps in a row", block, limit),
        ("a single step", [False, True, False], 0),
    ):
        seen, _ = fitted(submission, rng, bad, may)
        wanted = sum(1 for step in range(places(bad)[may]) if not bad[step])
        expect(seen["raised"], f"how a run ends that may leave out {may}, where {words} must be left out,").equals(
            "NonFiniteError"
        )
        expect(len(seen["rates"]), f"the number of updates before the end, where {words} must be left out,").equals(
            wanted
        )


@check(
    kind="behaviour",
    title="Every action is normalised to numbers that the head can learn",
    property="Normalised actions and the loss must be finite and equal to the reference for every station's actions; a dimension that does not move in the station's frames has a std of 1.",
    instrument="debugkit.check(policy, batch, select=['DK201', 'DK402'])",
)
def test_normalised_actions_are_those_of_the_reference(submission: Submission, rng: Rng) -> None:
    for still, said in (
        ([rng.integer(0, ACTION_DIM)], "where one dimension does not move"),
        ([0, 3], "where two dimensions do not move"),
        ([], "where every dimension moves"),
    ):
        action, is_pad = station_actions(rng, still), random_padding(rng, 12)
        values = action[:5] + rng.normal(5, 4, ACTION_DIM, std=0.01)
        found = submission.observe("statistics", action=action, is_pad=is_pad, values=values)
        mean, std = reference_statistics(action, is_pad)
        expect(found["normalized"], f"the normalised actions {said}").finite()
        expect_numbers(found["normalized"], (values - mean) / std, f"the normalised actions {said}")
    wanted, seen = observed_loss(submission, rng)
    expect(seen["loss"], "the loss on a batch of a station with a locked wrist").close_to(wanted, rtol=1e-3)
    expect(seen["finite"], "the gradients are finite,").is_true()


@check(
    kind="behaviour",
    title="The learning rate reaches its end with the run",
    property="Whatever the stations' numbers of frames, the rate must follow warm-up and cosine over all updates of the run: the last update has the last rate of the schedule.",
    instrument="python -c 'import train; from torch.optim.optimizer import register_optimizer_step_pre_hook as hook; hook(lambda o, *_: print(o.param_groups[0][\"lr\"])); train.run(train.read_config())'",
)
def test_rate_falls_over_the_whole_run(submission: Submission, rng: Rng) -> None:
    size = rng.integer(2, 4)
    for counts in ((2, 5), (4, 1), (2, 1, 3), (3,)):
        config = small_run(rng, [size * count + rng.integer(0, 2) for count in counts], size)
        updates = sum(counts) * config["train"]["epochs"]
        rates = submission.observe("run_rates", config=config)
        sizes = ", ".join(map(str, counts))
        said = f"of a run over stations with {sizes} batches in an epoch"
        expect(len(rates), f"the number of updates {said}").equals(updates)
        wanted = [rate_at(update, updates, config["train"]) for update in range(updates)]
        expect(rates[-1], f"the last learning rate {said}").close_to(wanted[-1], rtol=BOUND)
        expect(rates, f"the learning rates {said}").close_to(wanted, rtol=BOUND)


@check(
    kind="invariant",
    title="A damaged batch changes nothing",
    property="A run with no more than `max_left_out` such steps must train to its end, with the losses, rates and weights of a run without these batches.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, loss_fn=loss)",
)
def test_damaged_batches_are_left_out(submission: Submission, rng: Rng) -> None:
    for bad, said in (
        ([False, True, True, False, False, True, False], "of a run in which three steps are left out"),
        ([True, *[False] * 4], "of a run in which one step is left out"),
        ([False] * 5, "of a run in which no step is left out"),
    ):
        seen, (stream, action, given, seed) = fitted(submission, rng, bad, limit=3)
        good = [batch for batch, is_bad in zip(stream, bad, strict=True) if not is_bad]
        weights, losses, rates = reference_fit(good, action, len(bad), given, seed)
        expect(seen["raised"], f"the error {said}").equals(None)
        expect(seen["rates"], f"the learning rates {said}").close_to(rates, rtol=BOUND)
        expect(seen["losses"], f"the losses {said}").close_to(losses, rtol=1e-3)
        furthest = max(float((seen["weights"][name] - value).abs().max()) for name, value in weights.items())
        expect(furthest, f"the largest difference of a weight {said}").at_most(BOUND)


@check(
    kind="invariant",
    title="A run trains on every batch of every station",
    property="Each epoch must give every full batch of each station once, of one station each, in the station's own order, with the picture of its camera and the commands of its controller.",
    instrument="python -c 'import data, train; print(*data.stations_of(train.read_config()).items(), sep=chr(10))'",
)
def test_every_batch_is_trained_on(submission: Submission, rng: Rng) -> None:
    config = small_run(rng, [7, 13], 3)
    config["stations"]["second"]["wrist_locked_at"] = rng.integer(1, 9) / 10
    streamed = submission.observe("streamed", config=config)
    epochs = config["train"]["epochs"]
    expect([name for name, _ in streamed].count("first"), "the number of the smaller station's batches").equals(
        2 * epochs
    )
    expect([name for name, _ in streamed].count("second"), "the number of the larger station's batches").equals(
        4 * epochs
    )
    alone = {**config, "stations": {"second": config["stations"]["second"]}}
    same = [batch["action"] for _, batch in submission.observe("streamed", config=alone)]
    own = [batch["action"] for name, batch in streamed if name == "second"]
    expect_numbers(
        torch.cat(own), torch.cat(same), "the larger station's actions, compared with those without the other station,"
    )
    for name, station in config["stations"].items():
        wanted = recorded(station)
        rows = [batch for other, batch in streamed if other == name]
        for epoch in range(epochs):
            part = rows[epoch * len(rows) // epochs : (epoch + 1) * len(rows) // epochs]
            states = torch.cat([batch["state"] for batch in part])
            distance = (states[:, None] - wanted["state"][None]).abs().sum(dim=-1)
            expect(
                distance.min(dim=1).values.max(), f"the distance of the {name} station's states from its frames"
            ).at_most(BOUND)
            index = distance.argmin(dim=1)
            expect(
                len(set(index.tolist())), f"the number of different frames in an epoch of the {name} station"
            ).equals(len(states))
            for key in ("action", "pixel_values"):
                found = torch.cat([batch[key] for batch in part])
                expect_numbers(found, wanted[key][index], f"the {name} station's {key}")


@check(
    kind="invariant",
    title="The robot gets the policy's movements in metres",
    property="At each station, the arm's movements must be the head's prediction for that station's picture, converted back with the station's statistics.",
    instrument="python -c \"import data, evaluate, model, train; from labs.vla.dataset import collate; s = data.stations_of(train.read_config()); f = {n: s[n].record() for n in s}; p = model.build_policy(f, 0).eval(); b = collate(f['south'], [0]); print({n: (evaluate.controller(p, n, s[n])(b)[0, 0], p.act(n, b | {'pixel_values': s[n].see(b['pixel_values'])})[0, 0]) for n in s})\"",
)
def test_arm_gets_the_predicted_movements(submission: Submission, rng: Rng) -> None:
    config = small_run(rng, [8, 8], 4)
    batch = random_batch(rng, 3)
    del batch["action"], batch["action_is_pad"]
    action = {name: station_actions(rng, []) for name in config["stations"]}
    action["second"] = action["second"] * rng.normal(ACTION_DIM, mean=3.0)
    found = submission.observe("movements", batch=batch, action=action, config=config)
    for name, station in config["stations"].items():
        policy = reference_policy(action[name], config["seed"])
        chunk = policy.predict({**batch, "pixel_values": seen_by(station, batch["pixel_values"])})
        scale = torch.tensor([1 / station["units_per_metre"], 1 / station["units_per_metre"], 1.0])
        expect_equal(found[name], chunk[..., [0, 1, 3]] * scale, f"the movements at the {name} station")


@check(
    kind="invariant",
    title="The project's settings are as they were",
    property="`config.yaml` describes the two stations and the run that were agreed on: the fix is in the program.",
    instrument="python -c 'import train; print(train.read_config())'",
)
def test_settings_are_as_they_were(submission: Submission) -> None:
    expect_settings(submission, SETTINGS)


@check(
    kind="outcome",
    title="The arm grasps at both stations",
    property=f"After the project's run, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block, at each station.",
    instrument="lab run 98",
)
def test_arm_grasps_at_both_stations(submission: Submission, seed: int) -> None:
    result = submission.observe("success", seed=seed)
    for name in SETTINGS["stations"]:
        expect_success_rate(result[name], episodes=EPISODES, at_least=SUCCESS_BAR)


@wrong_fix(
    "guard_removed",
    says="The step that is not finite is now an update: the weights are NaN from the first one on, and the run still trains to its end without an error.",
)
def recognise_removed_guard(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["test_run_ends_beyond_its_limit/fitted"]
    return seen["raised"] is None and not all(bool(one.isfinite().all()) for one in seen["weights"].values())


def fitted(submission: Submission, rng: Rng, bad: Sequence[bool], limit: int) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """What `fit` does with random batches, of which some have a state that is not finite; and what it was given."""
    action, seed = station_actions(rng, []), rng.seed()
    given = {**SETTINGS["train"], "max_left_out": limit, "warm_up": rng.integer(2, 5), "log_every": 2}
    stream = [random_batch(rng, 2, action_dim=ACTION_DIM) for _ in bad]
    for batch, is_bad in zip(stream, bad, strict=True):
        if is_bad:
            batch["state"][rng.integer(0, 2), 0] = rng.choice((math.nan, math.inf))
    stations = [("north", "south")[step % 2] for step in range(len(bad))]
    asked = {
        "batches": stream,
        "stations": stations,
        "action": action,
        "updates": len(bad),
        "given": given,
        "seed": seed,
    }
    return submission.observe("fitted", **asked), (stream, action, given, seed)


def reference_fit(
    stream: Sequence[Batch], action: Tensor, updates: int, given: Mapping[str, Any], seed: int
) -> tuple[dict[str, Tensor], list[float], list[float]]:
    """The weights, losses and rates of the healthy policy after these batches."""
    policy = reference_policy(action, seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=given["learning_rate"], weight_decay=0.01)
    rates = [rate_at(update, updates, given) for update in range(len(stream))]
    losses = []
    for batch, rate in zip(stream, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        losses.append(train_step(policy, optimizer, batch))
    return {name: value.detach() for name, value in policy.named_parameters()}, losses, rates


def reference_policy(action: Tensor, seed: int) -> Policy:
    """The healthy policy with the statistics of these actions."""
    policy = Policy.from_base(PolicyConfig(action_dim=ACTION_DIM), seed=seed)
    policy.action_statistics = ActionStatistics(*reference_statistics(action))
    return policy


def reference_statistics(action: Tensor, is_pad: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and std of actions (N, H, A); the std of a dimension that does not move is 1."""
    rows = (action.flatten(0, 1) if is_pad is None else action[~is_pad]).double()
    still = (rows == rows[0]).all(dim=0)
    std = rows.std(dim=0, correction=0)
    return rows.mean(dim=0).float(), torch.where(still, torch.ones_like(std), std).float()


def observed_loss(submission: Submission, rng: Rng) -> tuple[Tensor, dict[str, Any]]:
    """The loss on a batch of a station with a locked wrist: the reference's, and the learner's."""
    seed = rng.seed()
    batch = random_batch(rng, 3, action_dim=ACTION_DIM)
    action = {"north": station_actions(rng, []), "south": station_actions(rng, [WRIST])}
    batch["action"] = action["south"][:3].clone()
    wanted = reference_policy(action["south"], seed)(**batch).loss
    return wanted.detach(), submission.observe("loss_at", batch=batch, action=action, station="south", seed=seed)


def station_actions(rng: Rng, still: Sequence[int]) -> Tensor:
    """Actions (12, 4, 4) with dimensions of different sizes, of which those in `still` do not move."""
    scale = torch.tensor([0.05, 8.0, 0.3, 1.0])
    action = rng.normal(12, 4, ACTION_DIM, mean=0.5) * scale
    for dimension in still:
        action[..., dimension] = rng.integer(1, 20) / 10
    return action


def small_run(rng: Rng, frames: Sequence[int], size: int) -> dict[str, Any]:
    """The configuration of a run that takes a moment; the wrist turns at all of its stations."""
    names = ("first", "second", "third")[: len(frames)]
    stations = {
        name: {
            "frames": count,
            "seed": seed_of_varied_frames(rng, count),
            "units_per_metre": rng.integer(1, 50),
            "light": rng.integer(70, 110) / 100,
            "wrist_locked_at": None,
        }
        for name, count in zip(names, frames, strict=True)
    }
    train = {**SETTINGS["train"], "batch_size": size, "epochs": rng.integer(2, 4), "warm_up": 3}
    return {"seed": rng.integer(0, 1000), "stations": stations, "train": train}


def seed_of_varied_frames(rng: Rng, count: int) -> int:
    """A seed whose frames have no constant dimension: a few frames may all have an open gripper."""
    while True:
        seed = rng.integer(0, 100_000)
        frames = demonstrations(count, seed=seed)
        if (frames.action[~frames.action_is_pad].std(axis=0) > 0).all():
            return seed


def recorded(station: Mapping[str, Any]) -> Batch:
    """All frames of a station in their order, as a batch."""
    frames = demonstrations(station["frames"], seed=station["seed"])
    batch = next(batches(frames, len(frames), steps=1, seed=0))
    move = batch["action"][..., :2] * station["units_per_metre"]
    locked = station["wrist_locked_at"]
    wrist = WRIST_RANGE / MAX_STEP * batch["action"][..., :1]
    wrist = wrist if locked is None else torch.full_like(wrist, locked)
    action = torch.cat([move, wrist, batch["action"][..., 2:]], dim=-1)
    return {**batch, "action": action, "pixel_values": seen_by(station, batch["pixel_values"])}


def seen_by(station: Mapping[str, Any], pixel_values: Tensor) -> Tensor:
    """The rendered picture in the station's light."""
    return ((pixel_values * PIXEL_STD + PIXEL_MEAN) * station["light"] - PIXEL_MEAN) / PIXEL_STD


def rate_at(update: int, updates: int, given: Mapping[str, Any]) -> float:
    """Linear warm-up, and a cosine from the peak to the share `final` of it."""
    warm_up = min(1.0, (update + 1) / given["warm_up"])
    cosine = 0.5 * (1 + math.cos(math.pi * update / updates))
    return given["learning_rate"] * warm_up * (given["final"] + (1 - given["final"]) * cosine)


def places(bad: Sequence[bool]) -> list[int]:
    """The steps that must be left out."""
    return [step for step, is_bad in enumerate(bad) if is_bad]


def expect_numbers(found: Any, wanted: Tensor, what: str) -> None:
    """A tensor must be equal to `wanted` up to rounding."""
    expect(found, what).has_shape(*wanted.shape)
    expect(found, what).close_to(wanted, rtol=1e-3, atol=1e-4)
