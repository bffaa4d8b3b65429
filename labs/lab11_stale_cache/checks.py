"""What must hold for a policy that is frozen by name patterns. Runs in the grader's process; never sees the learner's code.

The parts that must be frozen are listed here independently, by the current names of the policy's parameters. The reference trains the
healthy policy, frozen by these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import TOLERANCE, close, expect_image_and_instruction_to_matter, listed, random_batch
from labs.vla.policy import Policy

STAYS = ("vision.", "language_model.embed_tokens.")
STEPS = 3
LEARNING_RATE, WEIGHT_DECAY, MAX_GRADIENT_NORM = 1e-3, 0.01, 1.0
OVERFIT_STEPS = 40
OVERFIT_BAR = 0.3
"""Share of the first loss that may be left."""
NOTHING = "nothing"


@check(
    kind="behaviour",
    title="The trainable parameters are those of the docstring",
    property="Every parameter of the vision tower and of the token embeddings must be frozen, and no other parameter.",
    instrument="python -c 'from policy import *; print([name for name, p in build_policy(0).named_parameters() if p.requires_grad])'",
)
def test_trainable_set_is_exact(submission: Submission) -> None:
    required = submission.observe("trainable")
    expect(required.keys() == set(names_of_all()), "whether the policy has the base's parameters").is_true()
    drift = {name for name, trains in required.items() if trains and name.startswith(STAYS)}
    expect(listed(drift), "what trains and must be frozen").equals(NOTHING)
    idle = {name for name, trains in required.items() if not trains and not name.startswith(STAYS)}
    expect(listed(idle), "what is frozen and must train").equals(NOTHING)


@check(
    kind="behaviour",
    title="A pattern that matches nothing is an error",
    property="freeze must raise a ValueError that quotes the pattern if one of its patterns matches no parameter, wherever it is in the list. A buffer is no parameter.",
    instrument='python -c \'from policy import *; freeze(build_policy(0), ("head.*", "no.such.part"))\'',
)
def test_pattern_without_a_match_raises(submission: Submission, rng: Rng) -> None:
    nothing = f"{rng.choice(('tower', 'head.mlp.9', 'vision_tower', 'Vision'))}.*"
    places = {
        ALONE: [nothing],
        "in the last place": ["head.*", nothing],
        "in the first place": [nothing, "projector.*"],
        "between two others": ["head.*", nothing, "vision.*"],
    }
    seen = {place: submission.observe("frozen_by", patterns=patterns, already=[]) for place, patterns in places.items()}
    for place, one in seen.items():
        expect(one["raised"] or "no error", ENDED.format(place))
    for place, one in seen.items():
        expect(one["raised"] or "no error", ENDED.format(place)).equals("ValueError")
    for place, one in seen.items():
        expect(one["message"], f"the message about {nothing} {place}").contains(nothing)
    for pattern in ("action_statistics.*", f"*.{rng.choice(('mean', 'std'))}"):
        one = submission.observe("frozen_by", patterns=["head.*", pattern], already=[])
        ended = f"how freeze ended for {pattern}, which matches buffers, but no parameter,"
        expect(one["raised"] or "no error", ended).equals("ValueError")
        expect(one["message"], f"the message about {pattern}").contains(pattern)


@check(
    kind="behaviour",
    title="Patterns freeze what they match",
    property="freeze must set requires_grad=False on exactly the parameters that its patterns match, and return their names, also where patterns overlap, and where some parameters are frozen already. What trains must keep its gradient, and a module's name matches no parameter.",
    instrument="python -c 'from policy import *; print(freeze(Policy.from_base(), (\"head.*\",)))'",
)
def test_patterns_freeze_what_they_name(submission: Submission, rng: Rng) -> None:
    names = names_of_all()
    one = rng.choice([name for name in names if name.startswith("language_model")])
    for patterns, already in (
        (["head.*"], []),
        (["*.bias", "projector.*"], []),
        (["*layers.1.*"], [one]),
        (["head.*", "head.mlp.*"], []),
        (["head.*", "head.mlp.0.*"], [name for name in names if name.startswith("head.")]),
        (["head.mlp.[02].weight", "proprioception.????"], []),
        (["*"], []),
    ):
        seen = submission.observe("frozen_by", patterns=patterns, already=already)
        asked = ", ".join(patterns)
        expect(seen["raised"] or "no error", f"how freeze ended for {asked}").equals("no error")
        expect(seen["kept"], f"whether all values and the mode are the same after freezing {asked}").is_true()
        matched = {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}
        for found, wanted, less, more in (
            (set(seen["frozen"]), matched | set(already), "left trainable", "froze in addition"),
            (set(seen["returned"]), matched, "did not return", "returned in addition"),
        ):
            expect(listed(wanted - found), f"what freeze {less} for {asked}").equals(NOTHING)
            expect(listed(found - wanted), f"what freeze {more} for {asked}").equals(NOTHING)
        expect(listed(set(seen["cleared"])), f"what trains, and lost its gradient by freezing {asked}").equals(NOTHING)
        expect(listed(set(seen["replaced"])), f"what is another tensor after freezing {asked}").equals(NOTHING)
    module = rng.choice(("vision", "projector", "language_model.layers.0"))
    one = submission.observe("frozen_by", patterns=["head.*", module], already=[])
    ended = f"how freeze ended for {module}, which is the name of a module, but of no parameter,"
    expect(one["raised"] or "no error", ended).equals("ValueError")


@check(
    kind="behaviour",
    title="Frozen weights are bit-identical after training",
    property="After a few steps of training every frozen weight must have exactly the same bits, and every other parameter must have moved as the reference's.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK112'])",
)
def test_frozen_weights_are_bit_equal(submission: Submission, rng: Rng) -> None:
    batch, seed = random_batch(rng, rng.integer(3, 7)), rng.seed()
    # All errors have the same sign, so the gradient has a norm of 1.3 or more, and is clipped.
    batch["action"] = torch.tensor([0.3, 0.3, 3.0]).expand_as(batch["action"]).clone()
    seen = submission.observe("training", batch=batch, seed=seed, steps=STEPS)
    before, after = seen["before"], seen["after"]
    drifted = {name for name in before if name.startswith(STAYS) and not torch.equal(before[name], after[name])}
    expect(listed(drifted), f"what {STEPS} steps changed and must be frozen").equals(NOTHING)
    reached = {name for name in seen["gradients"] if name.startswith(STAYS)}
    expect(listed(reached), "what is frozen and has a gradient").equals(NOTHING)
    expect(seen["modes"], "whether the policy trains in training mode").equals([True])
    reference, losses = trained(batch, seed)
    expect(seen["losses"], "the losses before each step").close_to(losses, rtol=TOLERANCE)
    learns = [name for name in names_of_all() if not name.startswith(STAYS)]
    idle = {name for name in learns if name not in seen["gradients"]}
    expect(listed(idle), "what must train and has no gradient").equals(NOTHING)
    start = dict(Policy.from_base(seed=seed).named_parameters())
    other = {name for name in learns if not torch.equal(before[name], start[name])}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals(NOTHING)
    own = dict(reference.named_parameters())
    clipped = {name for name in learns if not close(seen["gradients"][name], own[name].grad)}
    expect(listed(clipped), "what has another gradient after clipping").equals(NOTHING)
    moved = {name for name in learns if not close(after[name] - before[name], own[name] - start[name], rtol=0.05)}
    expect(listed(moved), f"what moved otherwise in {STEPS} steps of AdamW").equals(NOTHING)


@check(
    kind="invariant",
    title="The optimizer holds what trains",
    property="Matrices must be in a group with weight decay, vectors in one without, frozen parameters in none, and the log must say how much trains.",
    instrument="python -c 'from policy import *; print(describe(build_policy(0)))'",
)
def test_groups_hold_what_trains(submission: Submission, rng: Rng) -> None:
    policy = Policy()
    sizes = {name: value.numel() for name, value in policy.named_parameters()}
    first, *others, _ = sizes
    some = [name for name in others[1:] if bool(rng.boolean(1))]
    for frozen in (some, [first, *some]):  # the first that trains is a matrix, and then a vector
        seen = submission.observe("grouped", frozen=frozen)
        trains = {name: value for name, value in policy.named_parameters() if name not in frozen}
        decay = {name: value for names, value in zip(seen["names"], seen["decay"], strict=True) for name in names}
        twice = {name for name in decay if sum(names.count(name) for names in seen["names"]) > 1}
        expect(listed(twice), "what the groups hold twice").equals(NOTHING)
        expect(listed(trains.keys() - decay.keys()), "what trains and is in no group").equals(NOTHING)
        expect(listed(decay.keys() - trains.keys()), "what is frozen and in a group").equals(NOTHING)
        other = {name for name, value in trains.items() if decay[name] != (WEIGHT_DECAY if value.ndim >= 2 else 0.0)}
        expect(listed(other), "what has another weight decay").equals(NOTHING)
        count, total = sum(sizes[name] for name in trains), sum(sizes.values())
        expect(", ".join(seen["change the mode"]) or NOTHING, "what changes the policy's mode").equals(NOTHING)
        for said in (f"{count:,} of {total:,}", f"{count / total:.0%}"):
            expect(seen["log"], "the line for the log").contains(said)
    shapes = {
        "scalar": [],
        "bias": [3],
        "weight": [4],
        "matrix": [3, 4],
        "kernel": [2, 3, 4, 4],
        "scale": [],
        "a": [2, 2],
    }
    held = submission.observe("grouped_by_dimensions", shapes=shapes, frozen=["scale", "a"])
    for name, shape in shapes.items():
        wanted = [] if name in ("scale", "a") else [WEIGHT_DECAY if len(shape) >= 2 else 0.0]
        state = "frozen" if name in ("scale", "a") else "trainable"
        said = f"the weight decays of the groups with a {state} parameter of shape {shape}"
        expect(held[name], said).equals(wanted)


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
    title="The policy learns, and the cache stays valid",
    property=f"Training on one batch must bring the loss below {OVERFIT_BAR:.0%} of its start, and the tower's features must still be those of the base.",
    instrument="lab run 11",
)
def test_learns_on_the_cached_features(submission: Submission, rng: Rng, seed: int) -> None:
    images = rng.normal(4, 3, 64, 64)
    seen = submission.observe("overfitted", images=images, seed=seed, steps=OVERFIT_STEPS)
    with torch.no_grad():
        cached = Policy.from_base().eval().vision(pixel_values=images).last_hidden_state
    expect(seen["features"], "the tower's features after training").close_to(cached, rtol=0.0, atol=1e-6)
    expect(seen["losses"], "the losses").has_shape(OVERFIT_STEPS)
    expect(seen["losses"][-1] / seen["losses"][0], "the share of the first loss that is left").below(OVERFIT_BAR)


ALONE = "alone"
ENDED = "how freeze ended for a pattern without a match {}"
SET = "test_trainable_set_is_exact/trainable"
TRAINING = "test_frozen_weights_are_bit_equal/training"


@wrong_fix(
    "learning_rate_zero",
    says="The tower does not move because its learning rate is zero, but it still requires a gradient: backward computes it, clipping counts it, and other training code will move the tower.",
)
def recognise_learning_rate_zero(evidence: Mapping[str, Any]) -> bool:
    zero = tower_trains(evidence) and tower_rates(evidence) == {0.0}
    return zero and tower_stands_still(evidence) and tower_gradient(evidence) > 0


@wrong_fix(
    "detached_features",
    says="The tower gets no gradient, but it is not frozen: it requires one and is in the optimizer, and DistributedDataParallel will wait for a gradient that never arrives.",
)
def recognise_detached(evidence: Mapping[str, Any]) -> bool:
    held = tower_trains(evidence) and tower_rates(evidence) == {LEARNING_RATE}
    return held and tower_stands_still(evidence) and tower_gradient(evidence) < 0


@wrong_fix(
    "zeroed_gradients",
    says="The tower's gradients are zero, and a zero is not None: AdamW still decays every weight that has a gradient. The tower shrinks a little with every step.",
)
def recognise_zeroed(evidence: Mapping[str, Any]) -> bool:
    return tower_trains(evidence) and not tower_stands_still(evidence) and tower_gradient(evidence) == 0


@wrong_fix(
    "freeze_everything",
    says="Everything that must be frozen is frozen, but so is nearly everything that must learn: this pattern matches too much.",
)
def recognise_freeze_everything(evidence: Mapping[str, Any]) -> bool:
    learns = [trains for name, trains in evidence[SET].items() if not name.startswith(STAYS)]
    works = evidence["test_patterns_freeze_what_they_name"]["outcome"] == "passed"
    return works and not tower_trains(evidence) and sum(learns) < len(learns) / 2


@wrong_fix(
    "corrected_pattern_only",
    says="The tower is frozen again, until the next rename: a pattern that matches nothing still raises no error as long as another one matches something.",
)
def recognise_corrected_only(evidence: Mapping[str, Any]) -> bool:
    ended = {name: value for name, value in evidence.items() if "/how freeze ended for a pattern without" in name}
    alone = ended.pop(f"test_pattern_without_a_match_raises/{ENDED.format(ALONE)}")
    return not tower_trains(evidence) and alone == "ValueError" and set(ended.values()) == {"no error"}


def tower_trains(evidence: Mapping[str, Any]) -> bool:
    """Whether all of the tower requires a gradient."""
    return all(trains for name, trains in evidence[SET].items() if name.startswith("vision."))


def tower_rates(evidence: Mapping[str, Any]) -> set[float]:
    """The learning rates of the tower's parameters that the optimizer holds."""
    return {rate for name, rate in evidence[TRAINING]["rates"].items() if name.startswith("vision.")}


def tower_stands_still(evidence: Mapping[str, Any]) -> bool:
    """Whether training left the tower's bits alone."""
    before, after = evidence[TRAINING]["before"], evidence[TRAINING]["after"]
    return all(torch.equal(before[name], after[name]) for name in before if name.startswith("vision."))


def tower_gradient(evidence: Mapping[str, Any]) -> float:
    """The largest gradient norm in the tower; -1 if none of its parameters has a gradient."""
    gradients = evidence[TRAINING]["gradients"].items()
    return max((float(value.norm()) for name, value in gradients if name.startswith("vision.")), default=-1.0)


def names_of_all() -> list[str]:
    """The names of the policy's parameters."""
    return [name for name, _ in Policy().named_parameters()]


def trained(batch: Mapping[str, Tensor], seed: int) -> tuple[Policy, Tensor]:
    """The healthy policy after the steps, with the gradients of the last one, and the losses."""
    policy = Policy.from_base(seed=seed).train()
    for name, value in policy.named_parameters():
        value.requires_grad_(not name.startswith(STAYS))
    own = [value for value in policy.parameters() if value.requires_grad]
    groups = [
        {"params": [value for value in own if value.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [value for value in own if value.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer, losses = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.95)), []
    for _ in range(STEPS):
        loss = policy(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(own, MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.detach())
    return policy, torch.stack(losses)
