"""What must hold for a policy with adapters and recomputed activations. Runs in the grader's process, on data alone.

The reference is the healthy policy with independent adapters, and nothing is recomputed in it. Both get the same random
parameters, so each chunk, loss and gradient has one correct value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from labs.adapted_policy import (
    BASE,
    DEEP,
    DEEPER,
    RANK,
    WIDE,
    Case,
    adapter_names,
    batch_of,
    expect_adapters_to_be_new,
    is_trained,
    of_another_value,
    parts_of,
    random_parameters,
    reference_policy,
    reference_step,
)
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_equal,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
)
from labs.vla.policy import Policy

EPISODES = 50
SUCCESS_BAR = 0.8
MOST_OF_THE_MEMORY = 0.4
"""Relative to the bytes that the same step needs with all activations kept. With every layer recomputed it is 0.22."""
SMALLEST_MOVEMENT = 0.01
"""Relative to the size of a matrix A after training. Weight decay alone moves it by less than 0.004."""
NOTHING = "nothing"

DEEPEST = Case(12, DEEPER, rank=4)
CASES = (
    Case(4, BASE),
    Case(3, DEEP, rank=3),
    Case(2, DEEP, rank=16, training=False),
    Case(1, WIDE, rank=1),
    Case(2, BASE, recompute=False),
    Case(3, BASE, new=True),
)


@check(
    kind="behaviour",
    title="Every adapter gets the gradient of the action loss",
    property="Recomputed or kept, in training and in evaluation, the loss and the gradient of every adapter and of the head must be the reference's; nothing else may get one.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_every_adapter_gets_its_gradient(submission: Submission, rng: Rng) -> None:
    measured = []
    for case in CASES:
        parameters, batch = random_parameters(rng, case), batch_of(rng, case)
        seen = submission.observe("stepped", given=[batch], parameters=parameters, **case.asked)
        wanted = reference_step(case, parameters, [batch])
        expect(parts_of(wanted["gradients"].keys() - seen["gradients"].keys()), f"without a gradient ({case})")
        measured.append((case, seen, wanted))
    for case, seen, wanted in measured:
        found = seen["gradients"]
        without = parts_of(wanted["gradients"].keys() - found.keys())
        expect(without, f"where trained parameters have no gradient ({case})").equals(NOTHING)
        expect(parts_of(found.keys() - wanted["gradients"].keys()), f"where frozen ones have one ({case})").equals(
            NOTHING
        )
        expect_equal(seen["losses"], wanted["losses"], f"the loss ({case})")
        other = of_another_value(found, wanted["gradients"])
        expect(listed(other), f"what has another gradient than the loss gives ({case})").equals(NOTHING)


@check(
    kind="behaviour",
    title="Two batches add up, and stay as they are",
    property="Backward for two batches must give the sum of their gradients, change no parameter, and leave both batches as they were.",
    instrument="policy(**batch).loss.backward(); print(batch['pixel_values'].requires_grad, batch['pixel_values'].grad)",
)
def test_two_batches_add_up(submission: Submission, rng: Rng) -> None:
    case = Case(3, BASE, rank=rng.integer(2, 7))
    parameters, batches = random_parameters(rng, case), [batch_of(rng, case, size) for size in (3, 2)]
    seen = submission.observe("stepped", given=batches, parameters=parameters, **case.asked)
    wanted = reference_step(case, parameters, batches)
    expect(listed(seen["marked"]), "which tensors of the batches require a gradient afterwards").equals(NOTHING)
    for given, left in zip(batches, seen["batches"], strict=True):
        changed = {name for name, values in given.items() if not torch.equal(values, left[name])}
        expect(listed(changed), "which tensors of the batches have changed").equals(NOTHING)
    expect(listed(seen["changed"]), "which parameters backward has changed").equals(NOTHING)
    expect_equal(seen["losses"], wanted["losses"], "the losses of two batches")
    without = parts_of(wanted["gradients"].keys() - seen["gradients"].keys())
    expect(without, "where trained parameters have no gradient after two batches").equals(NOTHING)
    other = of_another_value(seen["gradients"], wanted["gradients"])
    expect(listed(other), "what has another gradient than the sum of two batches'").equals(NOTHING)


@check(
    kind="behaviour",
    title="Activations are recomputed, one layer after the other",
    property=f"In training every transformer layer must run twice, and a step may need at most {MOST_OF_THE_MEMORY:.0%} of the memory that it needs with all activations kept. In evaluation, and without `recompute`, every layer runs once.",
    instrument="python -c 'from policy import *; print([layer.gradient_checkpointing for layer in transformer_layers(build_policy(0))])'",
)
def test_activations_are_recomputed(submission: Submission, rng: Rng) -> None:
    for case in (DEEPEST, Case(2, BASE), Case(2, DEEP, training=False), Case(2, DEEP, recompute=False)):
        parameters, batch = random_parameters(rng, case), batch_of(rng, case)
        seen = submission.observe("stepped", given=[batch], parameters=parameters, **case.asked)
        times = 2 if case.recompute and case.training else 1
        expect(sorted(seen["runs"]), f"the transformer layers ({case})").equals(case.layers)
        most = expect(max(seen["runs"].values()), f"the most runs of a layer in one step ({case})")
        expect(min(seen["runs"].values()), f"the fewest runs of a layer in one step ({case})").equals(times)
        most.equals(times)
        if case == DEEPEST:
            kept = reference_step(case, parameters, [batch])["peak"]
            expect(seen["peak"] / kept, f"the peak, as a share of the one with all activations kept ({case}),").at_most(
                MOST_OF_THE_MEMORY
            )
    case = Case(3, DEEP)
    parameters, batch = random_parameters(rng, case), batch_of(rng, case)
    seen = submission.observe("acted", batch=batch, parameters=parameters, sizes=case.sizes, rank=case.rank)
    chunk = reference_policy(case, parameters).eval().predict(batch)
    expect_equal(seen["chunk"], chunk, "the chunk that is predicted")
    expect(max(seen["runs"].values()), "the most runs of a layer in a prediction").equals(1)


@check(
    kind="invariant",
    title="Adapters and head train, and nothing else",
    property="`adapt` must freeze every pretrained parameter and keep its value, and put an adapter of the given rank beside each linear layer of the transformer layers.",
    instrument="python -c 'from policy import *; print([n for n, p in build_policy(0).named_parameters() if p.requires_grad])'",
)
def test_adapters_and_head_train(submission: Submission, rng: Rng) -> None:
    for case in (Case(1, DEEP, rank=5), Case(1, WIDE, recompute=False), Case(1, BASE)):
        asked = {"sizes": case.sizes, "recompute": case.recompute, "seed": rng.seed()}
        rank = None if case.rank == RANK else case.rank
        seen, again, other = (
            submission.observe("adapted", **{**asked, "seed": seed}, rank=rank)
            for seed in (asked["seed"], asked["seed"], asked["seed"] + 1)
        )
        wanted = {name: list(value.shape) for name, value in reference_policy(case).named_parameters()}
        found = {name: list(value.shape) for name, value in seen["parameters"].items()}
        expect(listed(wanted.keys() ^ found.keys()), f"which parameters are missing or too many ({case})").equals(
            NOTHING
        )
        shapes = {name for name, shape in wanted.items() if found[name] != shape}
        expect(listed(shapes), f"which parameters have another shape ({case})").equals(NOTHING)
        trained = {name for name in wanted if is_trained(name)}
        expect(parts_of(trained - set(seen["trained"])), f"what is frozen and should train ({case})").equals(NOTHING)
        expect(parts_of(set(seen["trained"]) - trained), f"what trains and should be frozen ({case})").equals(NOTHING)
        before = {name.replace(".linear.", "."): value for name, value in seen["parameters"].items()}
        moved = {name for name, value in seen["before"].items() if not torch.equal(before[name], value)}
        expect(listed(moved), f"which parameters `adapt` has changed ({case})").equals(NOTHING)
        expect(seen["random_state_kept"], "whether the caller's random state is the same").is_true()
        expect_adapters_to_be_new(seen["parameters"], again["parameters"], other["parameters"], str(case))


@check(
    kind="invariant",
    title="The policy is the pretrained base, and adapters are saved as copies",
    property="`build_policy` must give the base and a head drawn from the seed, which act as before, with activations recomputed unless it is told otherwise. `adapters` must return every A and B by name, as copies without a graph.",
    instrument="python -c 'from policy import *; print(adapters(build_policy(0)).keys())'",
)
def test_policy_is_the_pretrained_base(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(0, 1000)
    base, batch = Policy.from_base(seed=seed), batch_of(rng, Case(3, BASE))
    for asked in ({}, {"rank": rng.integer(2, 7), "recompute": False}):
        built = submission.observe("built", seed=seed, batch=batch, **asked)
        times, found = 1 if "recompute" in asked else 2, built["parameters"]
        most = expect(max(built["runs"].values()), "the most runs of a layer in one step of the built policy")
        expect(min(built["runs"].values()), "the fewest runs of a layer in one step of the built policy").equals(times)
        most.equals(times)
        shipped = {name.replace(".linear.", "."): value for name, value in found.items()}
        other = {name for name, value in base.named_parameters() if not torch.equal(shipped[name], value)}
        expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals(NOTHING)
        ranks = {found[name].shape[0] for name in adapter_names(found)[0]}
        expect(ranks, "the adapters' ranks").equals({asked.get("rank", RANK)})
        again, of_another_seed = (
            submission.observe("built", seed=one, batch=batch, **asked)["parameters"] for one in (seed, seed + 1)
        )
        expect_adapters_to_be_new(found, again, of_another_seed, f"`build_policy`, rank {asked.get('rank', RANK)}")
    acted = submission.observe("action", batch=batch, seed=seed)
    expect_equal(acted, base.eval().predict(batch), "the chunk of a new policy")
    seen = submission.observe("saved", batch=batch, seed=seed)
    names = {name.removesuffix(".weight") for group in adapter_names(found) for name in group}
    expect(listed(names ^ seen["before"].keys()), "which matrices are missing or too many").equals(NOTHING)
    expect(listed(seen["requires_grad"]), "which saved matrices require a gradient").equals(NOTHING)
    stale = {
        name for name, value in seen["after"].items() if not torch.equal(value, seen["parameters"][f"{name}.weight"])
    }
    expect(listed(stale), "which saved matrices are not the policy's").equals(NOTHING)
    unsaved = {name for name in seen["before"] if name.endswith(".b") and seen["before"][name].any()}
    expect(listed(unsaved), "which saved matrices a later step has changed").equals(NOTHING)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the action.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="Every adapter moves, and the robot finds the block",
    property=f"After a short fine-tuning every adapter must have moved, the frozen weights must not, and at least {SUCCESS_BAR:.0%} of {EPISODES} episodes must succeed.",
    instrument="lab run 15",
)
def test_robot_finds_the_block(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    before, after = result["before"], result["after"]
    a, b = adapter_names(before)
    still = {name for name in b if not after[name].any()}
    still |= {
        name
        for name in a
        if float((after[name] - before[name]).norm()) < SMALLEST_MOVEMENT * float(before[name].norm())
    }
    expect(len(still), f"how many of the {len(a) + len(b)} adapter matrices have not moved").equals(0)
    moved = {name for name in before if not is_trained(name) and not torch.equal(before[name], after[name])}
    expect(parts_of(moved), "what was frozen and has moved").equals(NOTHING)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


@wrong_fix(
    "checkpointing_off",
    says="All gradients are correct, because nothing is checkpointed any more: every layer keeps its activations, and the step needs as much memory as without `recompute`.",
)
def recognise_no_checkpointing(evidence: Mapping[str, Any]) -> bool:
    return lacks_gradient(evidence) == NOTHING and most_runs(evidence) == 1 and trains_as_it_should(evidence)


@wrong_fix(
    "everything_unfrozen",
    says="Every adapter has a gradient now, and so has every pretrained weight: this is no longer fine-tuning with adapters, and the optimizer needs its memory for all of them.",
)
def recognise_unfrozen(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[f"{BUILT}/built"]
    return set(seen["trained"]) == set(seen["parameters"])


@wrong_fix(
    "language_model_only",
    says="The words' embeddings require a gradient now, so the language model's adapters get theirs. The vision tower runs before that: no input of its checkpointed layers requires a gradient.",
)
def recognise_language_model_only(evidence: Mapping[str, Any]) -> bool:
    marked = evidence["test_two_batches_add_up/stepped"]["marked"]
    return lacks_gradient(evidence) == "vision" and not marked and trains_as_it_should(evidence)


@wrong_fix(
    "one_checkpoint",
    says="One checkpoint around the whole policy saves nothing at the peak: when backward begins, it recomputes every layer and keeps all of their activations at once.",
)
def recognise_one_checkpoint(evidence: Mapping[str, Any]) -> bool:
    share = evidence.get(f"{RECOMPUTED}/the peak, as a share of the one with all activations kept ({DEEPEST}),", 0.0)
    return lacks_gradient(evidence) == NOTHING and most_runs(evidence) == 2 and 0.9 < share < 1.1


@wrong_fix(
    "pixels_of_the_batch",
    says="All adapters get their gradient. But it is the caller's batch that was changed: its pixels require a gradient now, and backward leaves one of their size in it.",
)
def recognise_pixels_of_the_batch(evidence: Mapping[str, Any]) -> bool:
    return lacks_gradient(evidence) == NOTHING and evidence["test_two_batches_add_up/stepped"]["marked"] == [
        "pixel_values"
    ]


GRADIENTS, RECOMPUTED = "test_every_adapter_gets_its_gradient", "test_activations_are_recomputed"
BUILT = "test_policy_is_the_pretrained_base"


def lacks_gradient(evidence: Mapping[str, Any]) -> str:
    """Where trained parameters have no gradient when two layers of each tower are recomputed in training."""
    return str(evidence[f"{GRADIENTS}/without a gradient ({CASES[1]})"])


def most_runs(evidence: Mapping[str, Any]) -> int:
    """The most runs of a layer in one step of the deepest policy."""
    return int(evidence[f"{RECOMPUTED}/the most runs of a layer in one step ({DEEPEST})"])


def trains_as_it_should(evidence: Mapping[str, Any]) -> bool:
    """Whether only adapters and the head require a gradient."""
    return all(map(is_trained, evidence[f"{BUILT}/built"]["trained"]))
