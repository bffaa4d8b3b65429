"""What must hold for a policy that is frozen by name patterns. Runs in the grader's process; never sees the learner's code.

The parts that must be frozen are listed here independently, by the current names of the policy's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch
from labs.vla.policy import Policy

STAYS = ("vision.", "language_model.embed_tokens.")
STEPS = 3
OVERFIT_STEPS = 40
OVERFIT_BAR = 0.3
"""Share of the first loss that may be left."""


@check(
    kind="behaviour",
    title="The trainable parameters are those of the docstring",
    property="Every parameter of the vision tower and of the token embeddings must be frozen, and no other parameter.",
    instrument="debugkit.check(policy, batch, declare=Declare(trainable=(…)), select=['DK113'])",
)
def test_trainable_set_is_exact(submission: Submission) -> None:
    required = submission.observe("trainable")
    expect(len(required), "the number of parameters").equals(len(dict(Policy().named_parameters())))
    drift = [name for name, trains in required.items() if trains and name.startswith(STAYS)]
    expect(len(drift), "the number of trainable parameters that must be frozen").equals(0)
    idle = sorted(name for name, trains in required.items() if not trains and not name.startswith(STAYS))
    expect(idle, "the list of frozen parameters that must train").equals([])


@check(
    kind="behaviour",
    title="Frozen weights are bit-identical after training",
    property="After a few steps of training every frozen weight must have exactly the same bits, and every other parameter must have moved.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK112'])",
)
def test_frozen_weights_are_bit_equal(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("training", batch=random_batch(rng, rng.integer(3, 7)), seed=rng.seed(), steps=STEPS)
    before, after = seen["before"], seen["after"]
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    drifted = sorted(name for name in changed if name.startswith(STAYS))
    expect(len(drifted), f"the number of frozen tensors that {STEPS} steps changed").equals(0)
    still = sorted(name for name in before if not name.startswith(STAYS) and name not in changed)
    expect(still, "the list of tensors that must train and did not change").equals([])


@check(
    kind="behaviour",
    title="A pattern that matches nothing is an error",
    property="freeze must raise a ValueError that quotes the pattern if one of its patterns matches no parameter, wherever it is in the list.",
    instrument='python -c \'from policy import *; freeze(build_policy(0), ("head.*", "no.such.part"))\'',
)
def test_pattern_without_a_match_raises(submission: Submission, rng: Rng) -> None:
    nothing = f"{rng.choice(('tower', 'head.mlp.9', 'vision_tower', 'Vision'))}.*"
    for patterns in ([nothing], ["head.*", nothing], [nothing, "projector.*"], ["head.*", nothing, "vision.*"]):
        seen = submission.observe("frozen_by", patterns=patterns, seed=rng.seed())
        expect(seen["raised"], f"what freeze raised for the patterns {patterns}").equals("ValueError")
        expect(seen["message"], "the message").contains(nothing)


@check(
    kind="behaviour",
    title="Patterns freeze what they match",
    property="freeze must set requires_grad=False on exactly the parameters that its patterns match, also where patterns overlap.",
    instrument="python -c 'from policy import *; print(freeze(Policy.from_base(), (\"head.*\",)))'",
)
def test_patterns_freeze_what_they_name(submission: Submission, rng: Rng) -> None:
    names = list(dict(Policy().named_parameters()))
    for patterns, wanted in (
        (["head.*"], lambda name: name.startswith("head.")),
        (["*.bias", "projector.*"], lambda name: name.endswith(".bias") or name.startswith("projector.")),
        (["*layers.1.*"], lambda name: "layers.1." in name),
    ):
        seen = submission.observe("frozen_by", patterns=patterns, seed=rng.seed())
        expect(seen["frozen"], f"the list of parameters that {patterns} froze").equals(
            [name for name in names if wanted(name)]
        )


@check(
    kind="invariant",
    title="Only the trainable parameters get a gradient",
    property="Every trainable weight must get a gradient, and every frozen parameter none at all.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_only_the_rest_gets_a_gradient(submission: Submission, rng: Rng) -> None:
    norms = submission.observe("training", batch=random_batch(rng, 4), seed=rng.seed(), steps=1)["norms"]
    reached = sorted(name for name, norm in norms.items() if norm >= 0 and name.startswith(STAYS))
    expect(len(reached), "the number of frozen parameters with a gradient").equals(0)
    expect(
        [norm for name, norm in norms.items() if not name.startswith(STAYS) and name.endswith("weight")],
        "the gradient norm of each weight that trains",
    ).above(1e-8)


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


SET = "test_trainable_set_is_exact/trainable"
TRAINING = "test_frozen_weights_are_bit_equal/training"


@wrong_fix(
    "learning_rate_zero",
    says="The tower does not move because its learning rate is zero, but it still requires a gradient: backward computes it, clipping counts it, and other training code will move the tower.",
)
def recognise_learning_rate_zero(evidence: Mapping[str, Any]) -> bool:
    return _tower_trains(evidence) and _tower_stands_still(evidence) and _tower_gradient(evidence) > 0


@wrong_fix(
    "detached_features",
    says="The tower gets no gradient, but it is not frozen: it requires one and is in the optimizer, and DistributedDataParallel will wait for a gradient that never arrives.",
)
def recognise_detached(evidence: Mapping[str, Any]) -> bool:
    return _tower_trains(evidence) and _tower_stands_still(evidence) and _tower_gradient(evidence) < 0


@wrong_fix(
    "zeroed_gradients",
    says="The tower's gradients are zero, and a zero is not None: AdamW still decays every weight that has a gradient. The tower shrinks a little with every step.",
)
def recognise_zeroed(evidence: Mapping[str, Any]) -> bool:
    return _tower_trains(evidence) and not _tower_stands_still(evidence) and _tower_gradient(evidence) == 0


@wrong_fix(
    "freeze_everything",
    says="Everything that must be frozen is frozen, but so is nearly everything that must learn: this pattern matches too much.",
)
def recognise_freeze_everything(evidence: Mapping[str, Any]) -> bool:
    required = evidence[SET]
    return not _tower_trains(evidence) and any(
        not trains for name, trains in required.items() if not name.startswith(STAYS)
    )


@wrong_fix(
    "corrected_pattern_only",
    says="The tower is frozen again, until the next rename: a pattern that matches nothing still raises no error as long as another one matches something.",
)
def recognise_corrected_only(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["test_pattern_without_a_match_raises/frozen_by"]
    return not _tower_trains(evidence) and _tower_stands_still(evidence) and seen["raised"] is None


def _tower_trains(evidence: Mapping[str, Any]) -> bool:
    return any(trains for name, trains in evidence[SET].items() if name.startswith("vision."))


def _tower_stands_still(evidence: Mapping[str, Any]) -> bool:
    before, after = evidence[TRAINING]["before"], evidence[TRAINING]["after"]
    return all(torch.equal(before[name], after[name]) for name in before if name.startswith("vision."))


def _tower_gradient(evidence: Mapping[str, Any]) -> float:
    """The largest gradient norm in the tower; -1 if none of its parameters has a gradient."""
    return max(norm for name, norm in evidence[TRAINING]["norms"].items() if name.startswith("vision."))
