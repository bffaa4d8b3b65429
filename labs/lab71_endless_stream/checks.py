"""What must hold for a stream of rendered tables. Runs in the grader's process, without the learner's code.

Two items are the same table if their states and actions are equal: these float32 values depend on everything that was
drawn except the lamp, and a table under another lamp is not a new table. Whether an item is a correct demonstration is
determined from its pixels: the named block is found by its colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, listed
from labs.named_tensors import distance
from labs.vla.language import COLOUR_IDS
from labs.vla.policy import Policy
from labs.vla.tabletop import COLOUR_RGB, IMAGE_SIZE, expert_action
from labs.vla.training import learning_rate_at
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

EPOCHS = 3
HORIZON = 4
BATCH_SIZE, LEARNING_RATE, WORKERS = 16, 1e-3, 2
"""The defaults."""
BETAS, WEIGHT_DECAY, MAX_GRADIENT_NORM = (0.9, 0.95), 0.01, 1.0
HEAD_SCALE = 30.0
"""Makes the gradients longer than the norm to which they are clipped."""
NOTHING = "nothing"
LAST_STEPS = 8
GAP_BAR = 0.1
HELD_OUT_BAR = 0.70
SHARED = "the number of tables in both runs of a seed"
ALIKE = 6
"""Of two thousand tables: two arms in the same corner are alike in 3 % of all runs. From 65,536 seeds about 36 tables repeat."""


@check(
    kind="behaviour",
    title="No table is repeated",
    property="Over several epochs, with two workers and with three, every item must be a different table, also after one has been read in the main process.",
    instrument="debugkit.check(policy, batch, dataloader=loader, select=['DK702'])",
)
def test_no_table_comes_twice(submission: Submission, rng: Rng) -> None:
    for workers, read in ((2, False), (3, False), (2, True)):
        said = f"with {workers} workers" + ", after a table was read in the main process" * read
        batch_size = rng.integer(2, 4)
        tables = batch_size * workers * 2
        asked = {"tables": tables, "epochs": EPOCHS, "batch_size": batch_size, "workers": workers}
        seen = submission.observe("epochs", read=read, seed=rng.seed(), **asked)
        expect(seen["state"], "the arm's states").has_shape(EPOCHS * tables, 3)
        drawn = tables_of(seen)
        first = seen["first_process"].view(EPOCHS, -1)[:, 0]
        found = {**repetitions(drawn.view(EPOCHS, tables, -1)), "same processes": bool((first == first[0]).all())}
        expect(found, f"what repeats {said}")
        expect(different(drawn), f"the number of different tables {said}").equals(EPOCHS * tables)


@check(
    kind="behaviour",
    title="A run can be repeated",
    property="The same seed must give the same tables, whatever other code has drawn, whichever worker is slow, and also in another process; a different seed must give different tables.",
    instrument="python -c 'from policy import *; print([next(iter(build_loader(8, seed, 4)))[\"state\"][:, 0] for seed in (7, 7, 8)])'",
)
def test_run_is_repeatable(submission: Submission, rng: Rng) -> None:
    seed, asked = rng.seed(), {"tables": 8, "epochs": 2, "batch_size": 2, "workers": 2}
    first, second = (
        submission.observe("epochs", seed=seed, outside=rng.integer(0, 2**31), slow=slow, **asked) for slow in (0, 1)
    )
    expect(shared_by(tables_of(first), tables_of(second)), SHARED)  # for a recogniser
    expect(bool(torch.equal(first["state"], second["state"])), "the same seed gives the same arms,").is_true()
    expect(bool(torch.equal(tables_of(first), tables_of(second))), "the same seed gives the same tables,").is_true()
    expect(second["pixel_values"], "the pixels of the second run").equals(first["pixel_values"])
    other = submission.observe("epochs", seed=seed + 1, **asked)
    shared = shared_by(tables_of(first), tables_of(other))
    expect(shared, "the number of tables shared with a different seed").equals(0)
    asked = {"seed": seed, "tables": 2 * rng.integer(4, 8), "epochs": 2}
    run, again = (submission.observe("started_again", outside=rng.integer(0, 2**31), **asked) for _ in range(2))
    expect(run, "the states and actions of two epochs").has_shape(2 * asked["tables"], 3 * (1 + HORIZON))
    what = f"of {len(run)} tables, the number that are the same where the run is started again, in a process in which `hash` gives other numbers for strings,"
    expect(int((run == again).all(dim=-1).sum()), what).equals(len(run))


@check(
    kind="behaviour",
    title="Long epochs have no table twice",
    property="Where an epoch has more than a thousand tables, the items of all epochs must be different tables, too, but for the few that are equal by chance.",
    instrument="python -c 'from policy import *; rows = [tuple(row) for batch in stream(build_loader(1100, 0, 50), 2) for row in batch[\"action\"].flatten(1).tolist()]; print(len(rows), len(set(rows)))'",
)
def test_long_epochs_have_no_table_twice(submission: Submission, rng: Rng) -> None:
    tables = 64 * rng.integer(17, 19)
    drawn = submission.observe("many_tables", tables=tables, epochs=2, seed=rng.seed())
    said = f"two epochs of {tables} tables"
    expect(drawn, f"the states and actions of {said}").has_shape(2 * tables, 3 * (1 + HORIZON))
    expect(different(drawn), f"the number of different tables in {said}").at_least(2 * tables - ALIKE)


@check(
    kind="invariant",
    title="The workers render",
    property="While batches are read, the requested number of worker processes must be running.",
    instrument="python -c 'from policy import *; import multiprocessing; batches = iter(build_loader(8, 0, 4, workers=3)); next(batches); print(multiprocessing.active_children())'",
)
def test_workers_render(submission: Submission, rng: Rng) -> None:
    workers = rng.integer(2, 4)
    seen = submission.observe("epochs", tables=2 * workers, epochs=1, batch_size=1, workers=workers, seed=rng.seed())
    expect(seen["processes"], "the number of worker processes at each batch").equals(
        torch.full((2 * workers,), workers)
    )


@check(
    kind="invariant",
    title="Every item is a correct demonstration",
    property="The first action must move the arm towards the block that the instruction names, steps after the gripper closed must be padding, and the lamp's brightness must be 0.9 to 1.1.",
    instrument="python -c 'from policy import *; print(next(iter(build_loader(8, 0, 4))))'",
)
def test_items_are_right_demonstrations(submission: Submission, rng: Rng) -> None:
    tables = 4 * rng.integer(10, 13)
    batch = submission.observe("epochs", tables=tables, epochs=1, batch_size=4, workers=2, seed=rng.seed())
    expect(batch["pixel_values"], "the images").has_shape(tables, 3, IMAGE_SIZE, IMAGE_SIZE)
    expect(batch["action"], "the actions").has_shape(tables, HORIZON, 3)
    image = batch["pixel_values"].double() * PIXEL_STD + PIXEL_MEAN
    lamp = image.flatten(1).median(dim=1).values / (200 / 255)  # most pixels are the table's, grey 200
    expect(lamp, "the lamp's brightness").between(0.89, 1.11)
    expect(lamp.std(), "the spread of the lamp's brightness").above(0.02)
    arm = batch["state"][:, :2].double().numpy()
    wanted = expert_action(arm, named_block(image, batch["input_ids"], lamp).numpy())
    # The block's position is known to half a pixel along each axis.
    expect(batch["action"][:, 0, :2].double(), "the first move").close_to(
        torch.from_numpy(wanted[:, :2]).double(), rtol=0, atol=1 / (IMAGE_SIZE - 1)
    )
    closed = batch["action"][..., 2].cummax(dim=1).values > 0
    is_late = torch.cat([torch.zeros(tables, 1, dtype=torch.bool), closed[:, :-1]], dim=1)
    expect(batch["action_is_pad"], "action_is_pad").has_shape(*is_late.shape)
    expect(int((batch["action_is_pad"] != is_late).sum()), "the number of steps with a wrong action_is_pad").equals(0)


@check(
    kind="invariant",
    title="The expert and the lamp do what their docstrings say",
    property="`expert_chunk` must follow the expert until the gripper closed, `under_lamp` must round and saturate at 255, and the data set must have `tables` items and then raise an IndexError that names the range.",
    instrument="python -c 'from policy import *; print(render_frame(np.random.default_rng(0)))'",
)
def test_expert_and_lamp(submission: Submission, rng: Rng) -> None:
    block = rng.uniform(64, 2, low=0.1, high=0.9, dtype=torch.float64)
    arm = (block + rng.normal(64, 2, std=0.15, dtype=torch.float64)).clamp(0, 1)
    seen, (action, is_pad) = submission.observe("expert", arm=arm, block=block), expert_chunk(arm, block)
    expect(seen["action"], "the expert's chunks").close_to(action, rtol=0, atol=1e-5)
    expect(seen["action_is_pad"], "the expert's action_is_pad").has_shape(*is_pad.shape)
    expect(int((seen["action_is_pad"] != is_pad).sum()), "the number of wrong entries of action_is_pad").equals(0)
    image = rng.integers(0, 256, 1, IMAGE_SIZE, IMAGE_SIZE, 3).to(torch.uint8)
    for brightness in (0.9, 1.0, 1.1):
        wanted = (image.double() * brightness).round().clamp(max=255).to(torch.uint8)
        lit = submission.observe("lit", image=image, brightness=brightness)
        expect(lit, f"the image under a lamp of brightness {brightness}").equals(wanted)
    tables = rng.integer(3, 9)
    seen = submission.observe("bounds", tables=tables, seed=rng.seed())
    expect(seen["length"], "the length of the data set").equals(tables)
    for index, raised in zip((0, tables - 1), seen["raised"][:2], strict=True):
        expect(raised, f"what item {index} of {tables} raises").equals(None)
    for index, raised in zip((tables, -1), seen["raised"][2:], strict=True):
        said = f"what item {index} of {tables} raises"
        expect((raised or "nothing").partition(":")[0], said).equals("IndexError")
        for number in (index, tables - 1):
            expect(raised, said).contains(str(number))


@check(
    kind="invariant",
    title="Training equals the reference",
    property="`fine_tune` must train on the batches of its loader with AdamW, warm-up, a cosine schedule and clipped gradients, in training mode, and end in evaluation mode. Its defaults are batches of 16, a learning rate of 1e-3 and two workers.",
    instrument="lab run 71",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    seed, settings = rng.integer(3, 9), {"batch_size": 5, "learning_rate": 3e-3}
    for tables, scale, given in ((24, 1.0, {}), (12, HEAD_SCALE, settings)):
        said = "with batch_size=5 and learning_rate=3e-3" if given else "with the defaults"
        batch_size = int(given.get("batch_size", BATCH_SIZE))
        seen = submission.observe(
            "tuned", tables=tables, epochs=2, seed=seed, head_scale=scale, batch_size=batch_size, settings=given
        )
        sizes = [min(batch_size, tables - start) for start in range(0, tables, batch_size)] * 2
        expect([len(batch["state"]) for batch in seen["batches"]], f"the list of batch sizes {said}").equals(sizes)
        expect(
            same_batches(seen["batches"], seen["streamed"]), f"whether the batches are the loader's {said}"
        ).is_true()
        expect(seen["processes"], f"the list of numbers of worker processes {said}").equals([WORKERS] * len(sizes))
        expect(all(seen["training"]), f"whether every step is in training mode {said}").is_true()
        expect(seen["mode"], f"whether the policy is in training mode afterwards {said}").is_false()
        policy = scaled_policy(seed, scale)
        start = {name: value.clone() for name, value in policy.state_dict().items()}
        losses, norms = reference_training(policy, seen["batches"], given.get("learning_rate", LEARNING_RATE))
        expect(seen["losses"], f"the list of losses {said}").close_to(losses, rtol=5e-3)
        for step, (found, wanted) in enumerate(zip(seen["norms"], norms, strict=True), start=1):
            other = {
                name for name in wanted if not abs(found.get(name, 0.0) - wanted[name]) <= 2e-2 * wanted[name] + 1e-4
            }
            expect(listed(other), f"what has another gradient at step {step} {said}").equals(NOTHING)
        after = policy.state_dict()
        trained = {name for name, norm in norms[0].items() if norm > 1e-6}
        still = {name for name in trained if torch.equal(seen["after"][name], start[name])}
        expect(listed(still), f"what does not move {said}").equals(NOTHING)
        moved = {name: value - start[name] for name, value in after.items()}
        # In one norm: AdamW steps by the gradient's sign, and rounding alone decides it for an entry that is nearly zero.
        share = distance({name: seen["after"][name] - start[name] for name in after}, moved)
        expect(share, f"the weights' distance from the reference, as a share of how far they moved, {said}").at_most(
            0.02
        )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="Nothing is memorised",
    property=f"After a short fine-tuning the loss on other tables must be at most {GAP_BAR} above that of the last training steps, "
    f"and at most {HELD_OUT_BAR}.",
    instrument="lab run 71",
)
def test_nothing_is_learnt_by_heart(submission: Submission, seed: int) -> None:
    result = submission.observe("fine_tuned", seed=seed)
    losses, held_out = result["losses"], float(result["held_out"])
    expect(losses, "the training losses").has_shape(48)
    expect(held_out - float(losses[-LAST_STEPS:].mean()), "the additional loss on other tables").at_most(GAP_BAR)
    expect(held_out, "the loss on other tables").at_most(HELD_OUT_BAR)


PROCESSES = "test_workers_render/the number of worker processes at each batch"
REPEATS = "test_no_table_comes_twice/what repeats with 2 workers"


@wrong_fix(
    "persistent_workers",
    says="The workers stay alive, so the second epoch continues where the first ended. But they still started with two copies of one generator: every table comes from both workers.",
)
def recognise_persistent_workers(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get(REPEATS)
    return seen is not None and seen["within an epoch"] and not seen["between epochs"] and bool(seen["same processes"])


@wrong_fix(
    "seeded_without_the_epoch",
    says="Within an epoch every table is now different. But the seed uses only values that are the same in every epoch, so epoch 1 repeats epoch 0, table by table.",
)
def recognise_epochs_alike(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get(REPEATS)
    processes = evidence.get(PROCESSES)
    several = isinstance(processes, Tensor) and bool((processes > 1).all())
    return several and seen is not None and seen["whole epochs"] and not seen["within an epoch"]


@wrong_fix(
    "unseeded",
    says="No table is repeated, but no run can be repeated either: the same seed gives different tables each time. A run that went wrong can no longer be reproduced.",
)
def recognise_unseeded(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get(REPEATS)
    same = evidence.get("test_run_is_repeatable/the same seed gives the same arms,")
    repeats = seen is None or seen["within an epoch"] or seen["between epochs"]
    others = evidence.get(f"test_run_is_repeatable/{SHARED}") == 0  # not the same tables in another order
    return not repeats and same is False and others


@wrong_fix(
    "no_workers",
    says="With one process there is only one generator, and it does advance. But there are no workers any more: the policy waits for every table to be rendered.",
)
def recognise_no_workers(evidence: Mapping[str, Any]) -> bool:
    processes = evidence.get(PROCESSES)
    return isinstance(processes, Tensor) and bool((processes == 0).all())


def expert_chunk(arm: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    """The expert's actions (N, H, 3), the last one repeated after the gripper closed, and which of them come after it."""
    where, action = arm.numpy().copy(), np.empty((len(arm), HORIZON, 3), np.float32)
    is_pad = np.zeros((len(arm), HORIZON), bool)
    for row in range(len(arm)):
        for step in range(HORIZON):
            is_pad[row, step] = step > 0 and bool(action[row, step - 1, 2] > 0)
            action[row, step] = (
                action[row, step - 1] if is_pad[row, step] else expert_action(where[row], block[row].numpy())
            )
            where[row] += action[row, step, :2]
    return torch.from_numpy(action), torch.from_numpy(is_pad)


def scaled_policy(seed: int, scale: float) -> Policy:
    """The base policy with its head's last weights scaled."""
    policy = Policy.from_base(seed=seed)
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(scale)
    return policy


def reference_training(
    policy: Policy, batches: Sequence[Mapping[str, Tensor]], learning_rate: float
) -> tuple[list[float], list[dict[str, float]]]:
    """Train the policy in place; returns its losses, and the norm of each clipped gradient at each step."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)
    losses, norms = [], []
    policy.train()
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, len(batches), learning_rate)
        loss = policy(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters()})
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms


def same_batches(found: Sequence[Mapping[str, Tensor]], wanted: Sequence[Mapping[str, Tensor]]) -> bool:
    """Whether two lists of batches are equal."""
    return len(found) == len(wanted) and all(
        torch.equal(one[name], other[name]) for one, other in zip(found, wanted, strict=True) for name in other
    )


def tables_of(seen: Mapping[str, Tensor]) -> Tensor:
    """What distinguishes tables, independently of the lamp: state and actions, (N, 3 + H * A)."""
    return torch.cat([seen["state"], seen["action"].flatten(1)], dim=1)


def different(rows: Tensor) -> int:
    """The number of different rows of (N, K)."""
    return len(torch.unique(rows.reshape(-1, rows.shape[-1]), dim=0))


def shared_by(some: Tensor, others: Tensor) -> int:
    """The number of different rows that occur in both."""
    return different(some) + different(others) - different(torch.cat([some, others]))


def repetitions(drawn: Tensor) -> dict[str, bool]:
    """Whether rows of (E, N, K) are repeated within an epoch, and whether they are repeated between epochs."""
    own = [different(epoch) for epoch in drawn]
    return {
        "within an epoch": min(own) < drawn.shape[1],
        "between epochs": different(drawn) < sum(own),
        "whole epochs": all(different(torch.cat([drawn[0], epoch])) == own[0] for epoch in drawn),
    }


def named_block(image: Tensor, input_ids: Tensor, lamp: Tensor) -> Tensor:
    """The position in metres (N, 2) of the block named by the instruction (N, 8), from pixels (N, 3, 64, 64) in 0 … 1."""
    where = []
    for pixels, words, brightness in zip(image, input_ids, lamp, strict=True):
        [colour] = [index for index, word in enumerate(COLOUR_IDS) if word in words]
        wanted = (torch.from_numpy(COLOUR_RGB[colour]).double() * brightness / 255).clamp(max=1.0)
        rows, columns = torch.nonzero((pixels - wanted[:, None, None]).abs().amax(dim=0) < 0.02, as_tuple=True)
        if len(rows) == 0:
            where.append(torch.full((2,), float("nan")).double())
            continue
        where.append(torch.stack([columns.min() + columns.max(), rows.min() + rows.max()]).double() / 2)
    return torch.stack(where) / (IMAGE_SIZE - 1)
