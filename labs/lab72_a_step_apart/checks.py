"""What must hold for a run that is killed and continued. Runs in the grader's process, without the learner's code.

Two runs are compared bit for bit: both are done by the submission, with one thread each, so nothing is lost to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.constrained_training import Reference, different, steps_of, under_one_lamp
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    expect_image_and_instruction_to_matter,
    listed,
    random_batch,
    random_padding,
    relative_error,
)
from labs.vla.dataset import demonstrations
from labs.vla.policy import Policy
from labs.vla.training import learning_rate_at

BATCH_SIZE, LEARNING_RATE, SAVE_EVERY = 16, 1e-3, 10
"""The defaults."""
NOTHING = "nothing"
HEAD = "head.mlp.2.weight"
LOUD = 30.0
"""Makes the gradients longer than the norm to which they are clipped."""
LONG, LONG_KILLS = 40, [13, 31]
MOVEMENT_BAR, GRIPPER_BAR = 0.06, 0.9


@check(
    kind="behaviour",
    title="A killed run is the run that is not killed",
    property="A run that is killed, at a checkpoint or between two, and continued must have exactly the losses and exactly the weights of a run in one go.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK704'])",
)
def test_killed_run_equals_the_run_in_one_go(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(0, 100_000)
    for save_every, kills, steps in ((3, [4, 8], 10), (2, [5], 8)):
        asked = {"frames": 8, "seed": seed, "steps": steps, "save_every": save_every, "batch_size": 3}
        straight = submission.observe("killed", kills=[], **asked)
        killed = submission.observe("killed", kills=kills, **asked)
        said = f"killed after step {' and '.join(map(str, kills))}, a checkpoint every {save_every} steps"
        expect(straight["ends"], "how the process of the run in one go ends").equals(["done"])
        expect(killed["ends"], f"how the processes end ({said})").equals([*["killed"] * len(kills), "done"])
        expect(killed["steps"], f"the steps of each process ({said})").equals(steps_of(kills, steps, save_every))
        wanted = dict(zip(straight["steps"][0], straight["losses"][0], strict=True))
        for process, (numbers, losses) in enumerate(zip(killed["steps"], killed["losses"], strict=True), start=1):
            for step, loss in zip(numbers, losses, strict=True):
                expect(loss, f"the loss of step {step} in process {process} ({said})").equals(wanted[step])
        after = different(killed["after"], straight["after"])
        expect(listed(after), f"which tensor of the policy differs at the end ({said})").equals(NOTHING)


@check(
    kind="behaviour",
    title="The policy's state_dict is all that it remembers",
    property="A policy that loads the `state_dict` of another, which has trained, must have exactly its next loss, in training mode or in evaluation mode, whatever it has seen before and in whichever mode it was when it loaded, also if it is a copy of a third policy.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK704'])",
)
def test_state_dict_is_all_that_the_policy_remembers(submission: Submission, rng: Rng) -> None:
    batches, seed = [random_batch(rng, rng.integer(2, 5)) for _ in range(5)], rng.seed()
    base = Policy().state_dict().keys()
    cases = (
        (0, False, False, True, False),
        (2, True, False, True, False),
        (2, True, True, True, False),
        (2, False, False, False, False),
        (2, True, False, True, True),
    )
    for used, training_first, in_a_module, training, copied in cases:
        how = {"used": used, "training_first": training_first, "in_a_module": in_a_module, "training": training}
        seen = submission.observe("remembered", batches=batches, seed=seed, copied=copied, **how)
        first, second = seen["losses"]
        if in_a_module:
            said = f"after {len(batches) - 1} batches, as a part of another module"
        elif copied:
            said = f"after {len(batches) - 1} batches, by a copy.deepcopy() of another policy"
        else:
            said = f"after {len(batches) - 1} batches, by one that had seen {used} in {mode(training_first)} mode"
        found = f"the next loss, in {mode(training)} mode, of a policy whose state was loaded {said}"
        expect(second, found).equals(first)
        expect(listed(seen["names"]), f"what differs in the state_dict of a policy loaded {said}").equals(NOTHING)
        more = {name for name, size in seen["saved"].items() if size > 1 and name not in base}
        expect(listed(more), "which tables of the policy are saved, although they follow from its settings").equals(
            NOTHING
        )


@check(
    kind="behaviour",
    title="The gripper's loss is held at its bound",
    property="In training mode each loss must use the weight that the losses before it gave, in evaluation mode the weight stays; the losses, their gradients and the prediction must equal those of the docstrings.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import demonstrations; b = collate(demonstrations(4, 1), range(4)); p = build_policy(0); p.dropout.p = 0; print([p.train(mode)(**b).loss.item() for mode in (True, True, True, False, False)])'",
)
def test_loss_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for training, count in ((True, 6), (False, 3)):
        batches = [padded(rng, rng.integer(2, 5)) for _ in range(count)]
        seed = rng.seed()
        seen = submission.observe("losses", batches=batches, seed=seed, training=training)
        reference = Reference(seed)
        reference.policy.train(training)
        wanted = reference.losses(batches, seed)
        constant = Reference(seed, rate=0.0)
        constant.policy.train(training)
        expect(seen["losses"], f"the losses in {mode(training)} mode").has_shape(count)
        unchanging = relative_error(seen["losses"], constant.losses(batches, seed))
        if training:
            expect(unchanging < TOLERANCE, "whether the gripper's weight stays at 1 in training mode").is_false()
        for number, (found, loss) in enumerate(zip(seen["losses"], wanted, strict=True), start=1):
            expect(float(found), f"loss {number} of {count} in {mode(training)} mode").close_to(
                float(loss), rtol=TOLERANCE
            )
        for name, value in reference.policy.named_parameters():
            if value.grad is not None and name.startswith("head."):
                error = relative_error(seen["gradients"][name], value.grad)
                expect(error, f"the relative error of the gradient of {name} in {mode(training)} mode").at_most(1e-2)
        expect(listed(seen["with_a_graph"]), f"which buffers keep a graph in {mode(training)} mode").equals(NOTHING)
        predicted = reference.policy.eval().predict(batches[-1])
        expect(relative_error(seen["predicted"], predicted), "the relative error of the prediction").at_most(TOLERANCE)


@check(
    kind="invariant",
    title="An epoch takes every frame once",
    property="Within an epoch no frame may be taken twice, another epoch and another seed have another order, frames too few for a batch are left out, and an order that loads the state of another continues it.",
    instrument="python -c 'from policy import *; order = ShuffledOrder(7, 0); print([order.take(3) for _ in range(6)])'",
)
def test_order_takes_every_frame_once(submission: Submission, rng: Rng) -> None:
    for frames, size in ((7, 2), (24, 6)):
        per_epoch, seed = frames // size, rng.seed()
        batches = 3 * per_epoch
        saved_at = per_epoch + 1
        asked = {"frames": frames, "size": size, "batches": batches, "saved_at": saved_at}
        seen = submission.observe("order", seed=seed, **asked)
        said = f"of {frames} frames in batches of {size}"
        expect(seen["taken"], f"the frames taken {said}").has_shape(batches, size)
        epochs = seen["taken"].view(3, -1)
        expect([len(epoch.unique()) for epoch in epochs], f"the different frames in each epoch {said}").equals(
            [per_epoch * size] * 3
        )
        inside = bool((epochs >= 0).all() and (epochs < frames).all())
        expect(inside, f"whether all frames taken exist, {said}").is_true()
        continued = bool(torch.equal(seen["continued"], seen["taken"][saved_at:]))
        expect(continued, f"whether an order that loads the state after {saved_at} batches continues, {said}").is_true()
    alike = [bool(torch.equal(epochs[a], epochs[b])) for a, b in ((0, 1), (1, 2), (0, 2))]
    expect(any(alike), "whether two epochs have the same order").is_false()
    again = submission.observe("order", seed=seed, **asked)["taken"]
    expect(bool(torch.equal(again, seen["taken"])), "whether the same seed has the same order").is_true()
    other = submission.observe("order", seed=seed + 1, **asked)["taken"].view(3, -1)
    expect(bool((other == epochs).all(dim=1).any()), "whether another seed has the same order").is_false()


@check(
    kind="invariant",
    title="A kill while a checkpoint is written loses nothing",
    property="A run that is killed while it writes a checkpoint must continue from the checkpoint before it, or from the beginning if there is none. Once a checkpoint is complete, a kill between any two operations on files must leave a whole one. Without `save_every`, a checkpoint is written every 10 steps.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import demonstrations; import os; from tempfile import mkdtemp; folder, save = Path(mkdtemp()), torch.save; torch.save = lambda state, file: (print(os.listdir(folder), \"now writes\", file), save(state, file)); fine_tune(demonstrations(6, 1), folder, steps=20, seed=1, batch_size=2)'",
)
def test_kill_while_a_checkpoint_is_written(submission: Submission, rng: Rng) -> None:
    asked = {"frames": 6, "seed": rng.integer(0, 100_000), "steps": 5, "save_every": 2, "batch_size": 2}
    for number, start in ((1, 1), (2, 3)):
        seen = submission.observe("killed", kills=[number], while_saving=True, **asked)
        said = f"killed while checkpoint {number} was written, after step {2 * number}"
        expect(seen["ends"], f"how the processes end ({said})").equals(["killed", "done"])
        expect(seen["steps"][1], f"the steps of the process that continues ({said})").equals(list(range(start, 6)))
    asked = {"frames": 6, "seed": rng.integer(0, 100_000), "steps": 12, "batch_size": 2}
    seen = submission.observe("killed", kills=[11], **asked)
    expect(seen["steps"], "the steps of each process, killed after step 11, without save_every").equals(
        steps_of([11], 12, SAVE_EVERY)
    )
    asked = {"frames": 6, "seed": rng.integer(0, 100_000), "steps": 5, "save_every": 2, "batch_size": 2}
    seen = submission.observe("between_operations", **asked)
    expect(seen["end"], "how the process of a run ends whose folder is copied before each operation on files").equals(
        "done"
    )
    straight = submission.observe("killed", kills=[], **asked)
    expect(straight["steps"], "the steps of a run in one go").equals([list(range(1, 6))])
    for (operation, after), (told, end) in zip(seen["operations"], seen["continued"], strict=True):
        said = f"killed after step {after} at `{operation}`, when the checkpoint of step 2 was complete"
        expect(end, f"how the process that continues ends ({said})").equals("done")
        steps = [step for step, _ in told]
        begins = min([*steps, 6])  # 6: all steps were done
        expect(begins, f"the first step of the process that continues ({said})").at_least(3)
        expect(steps, f"the steps of the process that continues ({said})").equals(list(range(begins, 6)))
        for step, loss in told:
            wanted = straight["losses"][0][step - 1]
            expect(loss, f"the loss of step {step} in the process that continues ({said})").equals(wanted)


@check(
    kind="invariant",
    title="Training equals the reference",
    property="`fine_tune` must train on batches of demonstrations under one lamp each, with AdamW, warm-up, a cosine schedule, clipped gradients and dropout, tell each step once, and return a policy in evaluation mode. Its defaults are batches of 16 and a learning rate of 1e-3.",
    instrument="lab run 72",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    frames, seed = 20, rng.integer(3, 9)
    lamps: list[float] = []
    for louder, given in ((1.0, {}), (LOUD, {"batch_size": 5, "learning_rate": 3e-3})):
        said = "with batch_size=5 and learning_rate=3e-3" if given else "with the defaults"
        steps, size = 6, int(given.get("batch_size", BATCH_SIZE))
        asked = {"frames": frames, "seed": seed, "louder": louder, "settings": {"steps": steps, **given}}
        seen = submission.observe("tuned", **asked)
        expect(seen["steps"], f"the steps that it tells {said}").equals(list(range(1, steps + 1)))
        expect([len(batch["state"]) for batch in seen["batches"]], f"the batch sizes {said}").equals([size] * steps)
        expect(all(seen["training"]), f"whether every step is in training mode {said}").is_true()
        expect(seen["mode"], f"whether the policy is in training mode afterwards {said}").is_false()
        for number, batch in enumerate(seen["batches"], start=1):
            unknown, lamp = under_one_lamp(batch, demonstrations(frames, seed))
            expect(unknown, f"the pixels of batch {number} that no lamp explains {said}").equals(0)
            lamps.append(lamp)
        reference = Reference(seed, louder)
        losses, norms = reference.train(seen["batches"], given.get("learning_rate", LEARNING_RATE), seed)
        expect(seen["losses"], f"the losses {said}").close_to(losses, rtol=5e-3)
        for step, (found, wanted) in enumerate(zip(seen["norms"], norms, strict=True), start=1):
            other = {
                name for name in wanted if not abs(found.get(name, 0.0) - wanted[name]) <= 2e-2 * wanted[name] + 1e-4
            }
            expect(listed(other), f"what has another gradient at step {step} {said}").equals(NOTHING)
        start, after = seen["start"], dict(reference.policy.named_parameters())
        moved = torch.cat([(after[name] - start[name]).detach().flatten() for name in after])
        found = torch.cat([(seen["after"][name] - start[name]).flatten() for name in after])
        share = relative_error(found, moved)
        expect(share, f"how far the weights are from the reference, as a share of how far they moved, {said}").at_most(
            0.02
        )
    expect(min(lamps), "the darkest lamp").at_least(0.899)
    expect(max(lamps), "the brightest lamp").at_most(1.101)
    expect(max(lamps) - min(lamps), f"the spread of the lamps of {len(lamps)} batches").above(0.05)


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
    title="A run on a machine that is taken away twice",
    property=f"A run of {LONG} steps that is killed twice must end with exactly the weights of the run in one go, and have learnt: on other demonstrations the mean error of a movement is at most {MOVEMENT_BAR} m and that of the gripper at most {GRIPPER_BAR}.",
    instrument="lab run 72",
)
def test_preempted_run_learns_the_same(submission: Submission, seed: int) -> None:
    straight = submission.observe("preempted", seed=seed, kills=[], steps=LONG)
    killed = submission.observe("preempted", seed=seed, kills=LONG_KILLS, steps=LONG)
    said = f"killed after steps {' and '.join(map(str, LONG_KILLS))} of {LONG}"
    expect(killed["ends"], f"how the processes end ({said})").equals([*["killed"] * len(LONG_KILLS), "done"])
    after = different(killed["after"], straight["after"])
    expect(listed(after), f"which tensor of the policy differs at the end ({said})").equals(NOTHING)
    expect(float(killed["movement"]), f"the mean error of the movements ({said})").at_most(MOVEMENT_BAR)
    expect(float(killed["gripper"]), f"the mean error of the gripper ({said})").at_most(GRIPPER_BAR)
    expect(killed["training"], f"whether the policy is in training mode at the end ({said})").is_false()


def padded(rng: Rng, size: int) -> dict[str, Tensor]:
    """A random batch in which later steps may be padding."""
    return {**random_batch(rng, size), "action_is_pad": random_padding(rng, size)}


def mode(training: bool) -> str:
    return "training" if training else "evaluation"


KILLED = "test_killed_run_equals_the_run_in_one_go"
REMEMBERED = "test_state_dict_is_all_that_the_policy_remembers"
LOSS = "test_loss_equals_the_reference"


@wrong_fix(
    "longer_warm_up",
    says="After each restart the learning rate rises from almost zero again. A warm-up makes the first steps small, whatever is wrong with them, and then no step has the size that it has in the run in one go.",
)
def recognise_warm_up(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[f"{KILLED}/killed"]
    steps = seen["steps"][-1][-1]
    shares = [
        [rate / learning_rate_at(step - 1, steps, LEARNING_RATE) for step, rate in zip(numbers, rates, strict=True)]
        for numbers, rates in zip(seen["steps"], seen["rates"], strict=True)
    ]
    rising = all(b[0] < 0.9 and b[1] > b[0] * 1.05 for b in shares[1:])
    return len(shares) > 1 and rising and all(abs(share - 1) < 1e-6 for share in shares[0])


@wrong_fix(
    "saved_beside_the_policy",
    says="Your runs continue as they should, because this loop restores what the policy forgot. But the policy's own state_dict is still not all that it remembers: a policy that loads it elsewhere, or while it trains, has another loss.",
)
def recognise_saved_beside(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[f"{REMEMBERED}/remembered"]
    first, second = seen["losses"]
    alone_in_training = seen["training"] and not seen["in_a_module"] and not seen["copied"]
    return passed(evidence, KILLED) and passed(evidence, LOSS) and first != second and alone_in_training


@wrong_fix(
    "forgotten_with_its_logarithm",
    says="After a restart the gripper's weight and its logarithm agree again, because now both are lost. The checkpoint no longer holds how far the weight had come, so it begins again at 1.",
)
def recognise_forgotten(evidence: Mapping[str, Any]) -> bool:
    saved = evidence[f"{REMEMBERED}/remembered"]
    scalars = [name for name, value in evidence[f"{KILLED}/killed"]["after"].items() if is_scalar(value)]
    return passed(evidence, LOSS) and not scalars and saved["losses"][0] != saved["losses"][1]


@wrong_fix(
    "constant_weight",
    says="A weight that never changes survives every restart. But it was there to hold the gripper's loss at its bound, and nothing does that any more.",
)
def recognise_constant_weight(evidence: Mapping[str, Any]) -> bool:
    constant = evidence.get(f"{LOSS}/whether the gripper's weight stays at 1 in training mode")
    return constant is True and passed(evidence, KILLED)


def passed(evidence: Mapping[str, Any], name: str) -> bool:
    return evidence.get(name, {}).get("outcome") == "passed"


def is_scalar(value: Any) -> bool:
    return not isinstance(value, Tensor) or value.ndim == 0
