"""What must hold for a stream of rendered tables. Runs in the grader's process, without the learner's code.

Two items are the same table if their states and actions are equal: these float32 values depend on everything that was
drawn except the lamp, and a table under another lamp is not a new table. Whether an item is a correct demonstration is
determined from its pixels: the named block is found by its colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter
from labs.vla.language import COLOUR_IDS
from labs.vla.tabletop import COLOUR_RGB, IMAGE_SIZE, expert_action
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

EPOCHS = 3
LAST_STEPS = 8
GAP_BAR = 0.1
HELD_OUT_BAR = 0.70


@check(
    kind="behaviour",
    title="No table is repeated",
    property="Over several epochs, with two workers and with three, every item must be a different table.",
    instrument="debugkit.check(policy, batch, dataloader=loader, select=['DK702'])",
)
def test_no_table_comes_twice(submission: Submission, rng: Rng) -> None:
    for workers in (2, 3):
        batch_size = rng.integer(2, 4)
        tables = batch_size * workers * 2
        seen = submission.observe(
            "epochs", tables=tables, epochs=EPOCHS, batch_size=batch_size, workers=workers, seed=rng.seed()
        )
        expect(seen["state"], "the arm's states").has_shape(EPOCHS * tables, 3)
        drawn = tables_of(seen)
        expect(repetitions(drawn.view(EPOCHS, tables, -1)), f"what repeats with {workers} workers")
        expect(different(drawn), f"the number of different tables with {workers} workers").equals(EPOCHS * tables)


@check(
    kind="behaviour",
    title="A run can be repeated",
    property="The same seed must give the same tables, whatever other code has drawn; a different seed must give different tables.",
    instrument="debugkit.seed_everything(7)",
)
def test_run_is_repeatable(submission: Submission, rng: Rng) -> None:
    seed, asked = rng.seed(), {"tables": 8, "epochs": 2, "batch_size": 2, "workers": 2}
    first, second = (submission.observe("epochs", seed=seed, outside=rng.integer(0, 2**31), **asked) for _ in range(2))
    expect(bool(torch.equal(tables_of(first), tables_of(second))), "the same seed gives the same tables,").is_true()
    expect(second["pixel_values"], "the pixels of the second run").equals(first["pixel_values"])
    other = submission.observe("epochs", seed=seed + 1, **asked)
    mine, others = tables_of(first), tables_of(other)
    shared = different(mine) + different(others) - different(torch.cat([mine, others]))
    expect(shared, "the number of tables shared with a different seed").equals(0)


@check(
    kind="invariant",
    title="The workers render",
    property="While batches are read, the requested number of worker processes must be running.",
    instrument="multiprocessing.active_children()",
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
    property="The first action must move the arm towards the block that the instruction names, and the lamp's brightness must be 0.9 to 1.1.",
    instrument="next(iter(build_loader(8, 0, 4)))",
)
def test_items_are_right_demonstrations(submission: Submission, rng: Rng) -> None:
    tables = 4 * rng.integer(3, 5)
    batch = submission.observe("epochs", tables=tables, epochs=1, batch_size=4, workers=2, seed=rng.seed())
    expect(batch["pixel_values"], "the images").has_shape(tables, 3, IMAGE_SIZE, IMAGE_SIZE)
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


REPEATS = "test_no_table_comes_twice/what repeats with 2 workers"


@wrong_fix(
    "persistent_workers",
    says="The workers stay alive, so the second epoch continues where the first ended. But they still started with two copies of one generator: every table comes from both workers.",
)
def recognise_persistent_workers(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get(REPEATS)
    return seen is not None and seen["within an epoch"] and not seen["between epochs"]


@wrong_fix(
    "seeded_without_the_epoch",
    says="Within an epoch every table is now different. But the seed uses only values that are the same in every epoch, so epoch 1 repeats epoch 0, table by table.",
)
def recognise_epochs_alike(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get(REPEATS)
    return seen is not None and seen["between epochs"] and not seen["within an epoch"]


@wrong_fix(
    "unseeded",
    says="No table is repeated, but no run can be repeated either: the same seed gives different tables each time. A run that went wrong can no longer be reproduced.",
)
def recognise_unseeded(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get(REPEATS)
    same = evidence.get("test_run_is_repeatable/the same seed gives the same tables,")
    return seen is not None and not any(seen.values()) and same is False


@wrong_fix(
    "no_workers",
    says="With one process there is only one generator, and it does advance. But there are no workers any more: the policy waits for every table to be rendered.",
)
def recognise_no_workers(evidence: Mapping[str, Any]) -> bool:
    processes = evidence.get("test_workers_render/the number of worker processes at each batch")
    return isinstance(processes, Tensor) and bool((processes == 0).all())


def tables_of(seen: Mapping[str, Tensor]) -> Tensor:
    """What distinguishes tables, independently of the lamp: state and actions, (N, 3 + H * A)."""
    return torch.cat([seen["state"], seen["action"].flatten(1)], dim=1)


def different(rows: Tensor) -> int:
    """The number of different rows of (N, K)."""
    return len(torch.unique(rows.reshape(-1, rows.shape[-1]), dim=0))


def repetitions(drawn: Tensor) -> dict[str, bool]:
    """Whether rows of (E, N, K) are repeated within an epoch, and whether they are repeated between epochs."""
    own = [different(epoch) for epoch in drawn]
    return {
        "within an epoch": min(own) < drawn.shape[1],
        "between epochs": different(drawn) < sum(own),
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
