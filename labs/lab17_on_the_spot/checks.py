"""What must hold for a training step in mixed precision. Runs in the grader's process; never sees the learner's code.

The reference is plain float32: the base policy trained here on the same loss, clipped and never scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch
from labs.vla.policy import Policy

MAX_NORM, LEARNING_RATE = 0.3, 0.1
ROUNDING = 0.03
"""What float16 may add to a step, relative to its length."""
SMALL_ROUNDING = 0.1
"""The same if the gradient is so small that float32 weights round their updates too."""
OVERFLOW = 1e9
"""A loss multiplied by this much overflows in float16 at every scale."""
LOSS_BAR = 0.4


@check(
    kind="behaviour",
    title="A step equals the float32 step",
    property="At any loss scale the weights must move by the learning rate times the float32 gradient, shortened to the maximum norm if it is longer.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_step_is_the_step_of_float32(submission: Submission, rng: Rng) -> None:
    for weight, length in ((0.1, "short"), (1.0, "long")):  # the clip must not change the short one
        for scale in (2.0 ** rng.integer(8, 11), 2.0 ** rng.integer(13, 16)):
            batch, seed = far_off(rng), rng.seed()
            seen = submission.observe("steps", stream=[batch], seed=seed, scale=scale, weights=[weight])
            gradient, (wanted,) = reference([batch], seed, [weight])
            moved, of = seen["moved"][0], f"for a {length} gradient at a scale of {scale:g}"
            expect(explain(moved / seen["learning_rate"], gradient, scale), f"what was done to a {length} gradient")
            expect(moved.norm() / wanted.norm(), f"the step's length over float32's {of}").between(
                1 - ROUNDING, 1 + ROUNDING
            )
            expect(distance(moved, wanted), f"the step's distance from float32's over its length {of}").below(ROUNDING)


@check(
    kind="behaviour",
    title="The log shows loss, norm and scale of the step",
    property="The reported norm must be that of all float32 gradients together before clipping, also if the optimizer has its weights in several groups, and the loss that of the batch, at any scale; the reported scale must be the one of the step.",
    instrument="print(torch.nn.utils.clip_grad_norm_(policy.parameters(), float('inf')))",
)
def test_reported_norm_is_the_gradients(submission: Submission, rng: Rng) -> None:
    for scale, groups in ((2.0 ** rng.integer(8, 11), 1), (2.0 ** rng.integer(13, 16), 2)):
        batch, seed = far_off(rng), rng.seed()
        given = {"stream": [batch], "seed": seed, "scale": scale, "weights": [1.0], "groups": groups}
        seen = submission.observe("steps", **given)["reported"][0]
        gradient, _ = reference([batch], seed, [1.0])
        expect(seen["gradient_norm"] / float(gradient.norm()), "the reported norm over the gradient's").between(
            1 - ROUNDING, 1 + ROUNDING
        )
        loss = float(weighted_loss(Policy.from_base(seed=seed), batch, 1.0).detach())
        expect(seen["loss"], "the reported loss").close_to(loss, rtol=0.01)
        expect(seen["scale"], "the reported scale").equals(scale)
        expect(seen["skipped"], "whether the step is reported as skipped").is_false()


@check(
    kind="behaviour",
    title="The next steps equal the float32 steps",
    property="Several steps must equal those of SGD with momentum in float32, also after a step that overflowed, with a frozen part, for single frames, and with two groups of weights in the optimizer; and the scaler must halve the scale when a gradient overflows and double it after its growth interval.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_next_steps_are_those_of_float32(submission: Submission, rng: Rng) -> None:
    for frozen, weights, groups in (("vision", [1.0, 0.1, 1.0], 1), (None, [1.0, OVERFLOW, 0.1], 2)):
        stream, seed = [far_off(rng), far_off(rng, size=1), far_off(rng)], rng.seed()
        given = {"stream": stream, "seed": seed, "scale": 2.0**12, "weights": weights, "frozen": frozen}
        seen = submission.observe("steps", **given, groups=groups, growth_interval=2)
        _, wanted = reference(stream, seed, weights, frozen=frozen)
        for number, (moved, step) in enumerate(zip(seen["moved"], wanted, strict=True), start=1):
            what = f"step {number} ({'a frozen tower' if frozen else 'two groups of weights, step 2 overflows'})"
            if weights[number - 1] == OVERFLOW:
                expect(float(moved.norm()), f"how far the weights moved in {what}").equals(0.0)
                expect(seen["reported"][number - 1]["skipped"], f"{what} is reported as skipped:").is_true()
            else:
                expect(distance(moved, step), f"the distance of {what} from float32's over its length").below(
                    2 * ROUNDING
                )
        scales = [2.0**12, 2.0**13, 2.0**13] if frozen else [2.0**12, 2.0**11, 2.0**11]
        how = "none overflows" if frozen else "the second overflows"
        expect(seen["scales"], f"the scales after three steps with a growth interval of 2 ({how})").equals(scales)
        expect(seen["training"], "whether the policy is in training mode after the steps").equals(frozen is None)
        trained = Policy.from_base()
        if frozen is not None:
            trained.get_submodule(frozen).requires_grad_(False)
        numbers = sum(value.numel() for value in trained.parameters() if value.requires_grad)
        expect(seen["optimized"], "the number of weights that the optimizer has").equals(numbers)


@check(
    kind="invariant",
    title="Layers run in float16, weights stay in float32",
    property="Under autocast every linear layer must return float16; weights and optimizer state must stay float32; and the scaler must begin at 65,536, double and halve.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_precision_is_mixed(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("steps", stream=[far_off(rng)], seed=rng.seed(), scale=1024.0, weights=[1.0])
    expect(seen["layers"], "the dtypes that the linear layers return").equals(["torch.float16"])
    expect(seen["kept"], "the dtypes of weights and optimizer state").equals(["torch.float32"])
    state = submission.observe("scaler")
    for name, value in (("scale", 2.0**16), ("growth_factor", 2.0), ("backoff_factor", 0.5)):
        expect(state.get(name), f"the scaler's {name} at first").equals(value)


@check(
    kind="invariant",
    title="Small gradients survive float16",
    property="A loss so small that its gradients are zero in float16 must still move the weights as in float32.",
    instrument="debugkit.check(policy, batch, select=['DK209'])",
)
def test_small_gradients_survive(submission: Submission, rng: Rng) -> None:
    batch, seed = far_off(rng), rng.seed()
    seen = submission.observe("steps", stream=[batch], seed=seed, scale=2.0**16, weights=[1e-4])
    _, (wanted,) = reference([batch], seed, [1e-4])
    off = distance(seen["moved"][0], wanted)
    expect(off, "the distance of a small step from float32's over its length").below(SMALL_ROUNDING)


@check(
    kind="invariant",
    title="A step that overflows changes nothing",
    property="If a scaled gradient overflows, the weights must not change and the scale must be halved.",
    instrument="debugkit.detect_overflow(policy, batch)",
)
def test_overflow_is_skipped(submission: Submission, rng: Rng) -> None:
    scale, batch = 2.0 ** rng.integer(30, 40), random_batch(rng, rng.integer(2, 6))
    seen = submission.observe("steps", stream=[batch], seed=rng.seed(), scale=scale, weights=[1.0])
    expect(scale, "the scale before the step")
    expect(seen["scales"][0] / scale, "the scale after the step over the one before it")
    expect(float(seen["moved"][0].norm()), "how far the weights moved").equals(0.0)
    expect(seen["reported"][0]["skipped"], "the step is reported as skipped:").is_true()
    expect(seen["reported"][0]["scale"], "the reported scale").equals(scale)
    expect(seen["scales"][0], "the scale after the step").equals(scale / 2)


@check(
    kind="invariant",
    title="train steps on each batch in training mode",
    property="`train` must make one step on each batch in training mode, pass each to `on_step` with its index, return them, and leave the policy in evaluation mode.",
    instrument="lab run 17",
)
def test_train_steps_on_each_batch(submission: Submission, rng: Rng) -> None:
    stream, seed = [far_off(rng) for _ in range(3)], rng.seed()
    seen = submission.observe("trained_on", stream=stream, seed=seed)
    expect(len(seen["losses"]), "the number of steps returned").equals(3)
    expect(seen["on_step"], "the losses passed to on_step").equals(seen["losses"])
    expect(seen["indices"], "the indices passed to on_step").equals([0, 1, 2])
    expect(all(seen["modes"]), "every forward pass runs in training mode:").is_true()
    expect(seen["training"], "whether the policy is in training mode afterwards").is_false()
    wanted = float(weighted_loss(Policy.from_base(seed=seed), stream[0], 1.0).detach())
    expect(seen["losses"][0], "the first loss").close_to(wanted, rtol=0.01)
    expect(submission.observe("trained_on", stream=[], seed=seed)["losses"], "the steps of an empty stream").equals([])


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
    title="Forty steps reduce the loss",
    property=f"After forty steps on one batch at most {LOSS_BAR:.0%} of the loss may be left.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_training_moves(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained", seed=seed)
    expect(seen["losses"], "the losses").finite()
    expect(seen["in_float32"] / seen["losses"][0], "the share of the loss that is left").at_most(LOSS_BAR)


SHORT = "test_step_is_the_step_of_float32/what was done to a short gradient"
LONG = "test_step_is_the_step_of_float32/what was done to a long gradient"
NORM = "test_reported_norm_is_the_gradients/the reported norm over the gradient's"
STEPS = "test_step_is_the_step_of_float32/steps"
SMALL = "test_small_gradients_survive"
AFTER = "test_overflow_is_skipped/the scale after the step over the one before it"
SCALE = "test_overflow_is_skipped/the scale before the step"


@wrong_fix(
    "no_clipping",
    says="Steps have their full length again, but all of them: a gradient that is ten times too long causes a step that is ten times too long. The clip must prevent that.",
)
def recognise_no_clipping(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "as in float32" and evidence[LONG] == "not clipped" and abs(evidence[NORM] - 1) < 0.1


@wrong_fix(
    "larger_constant",
    says="The bound fits one loss scale. The scaler changes the scale during training, and at another scale this clips nothing, or too much. And the reported norm is still multiplied by the scale.",
)
def recognise_larger_constant(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "as in float32" and evidence[LONG] == "not clipped" and evidence[NORM] > 10


@wrong_fix(
    "divide_by_hand",
    says="The clip gets the correct gradients, but then `scaler.step` divides them once more: it only knows that they are unscaled if `scaler.unscale_` did it.",
)
def recognise_divided_twice(evidence: Mapping[str, Any]) -> bool:
    goes_on = "test_next_steps_are_those_of_float32/steps" in evidence
    return goes_on and evidence[SHORT] == "divided once too often" and abs(evidence[NORM] - 1) < 0.1


@wrong_fix(
    "higher_learning_rate",
    says="The clip still works on the scaled gradients. At the first scale every step is now as long as the bound allows, even for short gradients, whose steps should stay short.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    higher = evidence[STEPS]["learning_rate"] > 10 * LEARNING_RATE
    return higher and evidence[SHORT] == "clipped as if the scale were part of it"


@wrong_fix(
    "no_scaler",
    says="Without the scaler the clip works on the right gradients, but float16 loses the small ones, and an overflow reaches the weights.",
)
def recognise_no_scaler(evidence: Mapping[str, Any]) -> bool:
    never_scaled = evidence[AFTER] in (1.0, 1.0 / evidence[SCALE])
    return never_scaled and abs(evidence[NORM] - 1) < 0.1 and evidence[SMALL]["outcome"] == "failed"


def far_off(rng: Rng, size: int | None = None) -> dict[str, Tensor]:
    """A batch whose actions are all far to one side of a fresh policy's predictions: its gradient is longer than 0.3."""
    batch = random_batch(rng, size or rng.integer(3, 7))
    return {**batch, "action": 0.5 + rng.uniform(*batch["action"].shape)}


def weighted_loss(policy: Policy, batch: dict[str, Tensor], weight: float) -> Tensor:
    """The policy's loss in float32, times a weight."""
    loss = policy(**batch).loss
    assert loss is not None
    return weight * loss


def reference(
    stream: list[dict[str, Tensor]], seed: int, weights: list[float], *, frozen: str | None = None
) -> tuple[Tensor, list[Tensor]]:
    """The gradient of the first batch before clipping, and the movement of all weights in each step, in float32.

    A step that overflows in float16 is left out.
    """
    policy = Policy.from_base(seed=seed).train()
    if frozen is not None:
        policy.get_submodule(frozen).requires_grad_(False)
    optimizer = torch.optim.SGD(policy.parameters(), lr=LEARNING_RATE, momentum=0.9)
    gradients, moved = [], []
    for batch, weight in zip(stream, weights, strict=True):
        before = joined(policy.parameters())
        optimizer.zero_grad()
        weighted_loss(policy, batch, weight).backward()
        gradients.append(joined(parameter.grad for parameter in policy.parameters() if parameter.grad is not None))
        if weight != OVERFLOW:
            nn.utils.clip_grad_norm_(policy.parameters(), MAX_NORM)
            optimizer.step()
        moved.append(joined(policy.parameters()) - before)
    return gradients[0], moved


def joined(tensors: Iterable[Tensor]) -> Tensor:
    """All tensors as one vector, in float64."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors])


def distance(moved: Tensor, wanted: Tensor) -> float:
    """How far a step is from the one wanted, relative to its length."""
    return float((moved - wanted).norm() / wanted.norm())


def explain(moved: Tensor, gradient: Tensor, scale: float) -> str:
    """What the step did with the gradient, in words; `moved` is the step over the learning rate."""
    candidates = {
        "as in float32": clipped(gradient),
        "not clipped": gradient,
        "divided once too often": clipped(gradient) / scale,
        "clipped as if the scale were part of it": clipped(gradient * scale) / scale,
    }
    for name, value in candidates.items():
        # Rounding in the float32 weights distorts tiny steps, so a rough match is enough.
        if float((moved + value).norm()) < 0.3 * float(value.norm()):
            return name
    return "something else"


def clipped(gradient: Tensor) -> Tensor:
    """The gradient, shortened to the maximum norm if it is longer."""
    return gradient * min(1.0, MAX_NORM / float(gradient.norm()))
