"""What must hold for a policy whose patches are standardised. Runs in the grader's process; never sees the learner's code.

The reference is the healthy policy with an independent standardising layer. Both get the same patches or the same random parameters, so
each output, statistic and gradient has one correct value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    PARTS,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
    padded_batch,
)
from labs.vla.policy import Policy

MOMENTUM = 0.1
SMALLEST_STD = 1e-3
CHANNELS = 64
HARDLY_VARIES = 7
"""The channel whose patches are nearly constant in the steps that are measured."""
TOLERANCE = 5e-3
"""Relative to the reference's size. Rounding alone gives 2e-4 in the channel that hardly varies, and 1e-5 elsewhere."""
EPISODES = 50
SUCCESS_BAR = 0.8
NOTHING = "nothing"


@dataclass(frozen=True)
class Step:
    """A batch of patches that goes through the policy."""

    frames: int
    training: bool = True
    backward: bool = True
    patches: int = 16

    def __str__(self) -> str:
        frames = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        return f"{frames}, {'training' if self.training else 'evaluation'} mode{'' if self.backward else ', no_grad'}"


FROM_SCRATCH = (
    Step(3),
    Step(5),
    Step(1),
    Step(2, training=False),
    Step(4, backward=False),
    Step(4, training=False, backward=False),
    Step(2, patches=9),
)
UNTRAINED = (Step(2, training=False), Step(3, training=False, backward=False), Step(3))
RESUMED = (Step(4), Step(1, training=False))
LIVES = {"from scratch": FROM_SCRATCH, "untrained": UNTRAINED, "resumed": RESUMED}


@check(
    kind="behaviour",
    title="The projector's input is what the docstring says",
    property="The projector must receive patches standardised with the running statistics, in training and in evaluation, also after a checkpoint was loaded.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_patches_are_standardised(submission: Submission, rng: Rng) -> None:
    everything = []
    for life, steps in LIVES.items():
        before, inputs = statistics(rng) if life == "resumed" else None, inputs_of(steps, rng)
        seen = submission.observe("standardised", steps=inputs, before=before)
        wanted = reference_steps(inputs, before)
        for number, (step, one, right, given) in enumerate(zip(steps, seen, wanted, inputs, strict=True), start=1):
            said = f"step {number} {life}: {step}"
            expect(explain(one["given"], given["patches"], right), f"what the projector reads ({said})")
            everything.append((said, one, right, given))
    for said, one, right, given in everything:
        read = explain(one["given"], given["patches"], right)
        if read != OTHER:
            expect(read, f"what the projector reads ({said})").equals(CORRECT)
        expect_equal(one["given"], right["given"], f"the projector's input ({said})")
        count = one["statistics"]["batches_seen"]
        expect(int(count), f"the number of batches seen ({said})").equals(int(right["statistics"]["batches_seen"]))
        for name in ("mean", "std"):
            expect(one["statistics"][name], f"the running {name} ({said})").close_to(
                right["statistics"][name], rtol=1e-3, atol=1e-5
            )


@check(
    kind="behaviour",
    title="The gradient goes through the standardising",
    property="The gradient at the tower's patches must be that at the projector's input, divided by the running standard deviation: that is the derivative of standardising.",
    instrument="debugkit.find_graph_cut(policy, batch)",
)
def test_gradient_has_its_true_size(submission: Submission, rng: Rng) -> None:
    for life, steps in LIVES.items():
        before, inputs = statistics(rng) if life == "resumed" else None, inputs_of(steps, rng)
        seen = submission.observe("standardised", steps=inputs, before=before)
        for number, (step, one, right) in enumerate(
            zip(steps, seen, reference_steps(inputs, before), strict=True), start=1
        ):
            if step.backward:
                said = f"step {number} {life}: {step}"
                expect(one["gradient"] is not None, f"whether the tower's patches got a gradient ({said})").is_true()
                expect_equal(one["gradient"], right["gradient"], f"the gradient of the tower's patches ({said})")


@check(
    kind="behaviour",
    title="Every parameter gets the gradient of the action loss",
    property="With the same parameters and statistics, the loss, the chunk and the gradient of every parameter must be the reference's, in training and in evaluation.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_reaches_the_tower(submission: Submission, rng: Rng) -> None:
    submission.observe("gradients", batch=padded_batch(rng, 4), seed=rng.seed())
    for frames, training in ((4, True), (1, True), (3, False)):
        said = f"{'1 frame' if frames == 1 else f'{frames} frames'}, {'training' if training else 'evaluation'} mode"
        reference, batch = Reference.from_base(seed=rng.seed()), padded_batch(rng, frames)
        reference.standardise.load_state_dict(statistics(rng))
        given = {"parameters": dict(reference.state_dict()), "batch": batch, "training": training}
        seen = submission.observe("computed", **given)
        loss = reference.train(training)(**batch).loss
        loss.backward()
        wanted = {name: value.grad for name, value in reference.named_parameters() if value.grad is not None}
        without = {name.split(".")[0] for name in wanted.keys() - seen["gradients"].keys()}
        expect(listed(without), f"which part has parameters without a gradient ({said})").equals(NOTHING)
        expect(seen["loss"], f"the loss ({said})").close_to(loss.detach(), rtol=TOLERANCE)
        expect_equal(seen["chunk"], reference.eval().predict(batch), f"the chunk ({said})")
        total = float(torch.stack([gradient.norm() for gradient in wanted.values()]).norm())
        other = {
            name
            for name, gradient in wanted.items()
            if not float((seen["gradients"][name] - gradient).norm())
            <= TOLERANCE * float(gradient.norm()) + 1e-5 * total
        }
        expect(listed(other), f"what has another gradient than the action loss gives ({said})").equals(NOTHING)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="invariant",
    title="In evaluation a frame does not depend on its neighbours",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="invariant",
    title="The policy is built as before",
    property="Every parameter must train. `build_policy` must give the base with its patch embedding, and an encoder and a head drawn from the seed; the checkpoint must hold the statistics.",
    instrument="python -c 'from policy import *; print(build_policy(0).state_dict().keys())'",
)
def test_policy_is_built_as_before(submission: Submission, rng: Rng) -> None:
    required, seed = submission.observe("trainable"), rng.seed()
    expect(listed({name for name, trains in required.items() if not trains}), "what is frozen").equals(NOTHING)
    expect(sorted({name.partition(".")[0] for name in required}), "the list of trained parts").equals(PARTS)
    one, again, another = (submission.observe("built", seed=number) for number in (seed, seed, seed + 1))
    expect(listed(Reference().state_dict().keys() ^ one.keys()), "what a checkpoint lacks or has too many").equals(
        NOTHING
    )
    changed = {name for name in one if not torch.equal(one[name], again[name])}
    expect(listed(changed), "what differs between two policies of one seed").equals(NOTHING)
    drawn = {name for name in one if name.startswith(("vision.encoder.", "head."))}
    base, matrices = Policy.from_base().state_dict(), {name for name in drawn if one[name].dim() > 1}
    same = {name for name in matrices if torch.equal(one[name], another[name]) or torch.equal(one[name], base[name])}
    expect(listed(same), "what is not drawn from the seed").equals(NOTHING)
    kept = {name for name in base.keys() - drawn if not torch.equal(one[name], base[name])}
    expect(listed(kept), "what differs from the pretrained base").equals(NOTHING)


@check(
    kind="outcome",
    title="The tower learns, and the robot finds the block",
    property=f"After a short training the vision tower must have moved, and at least {SUCCESS_BAR:.0%} of {EPISODES} episodes must succeed.",
    instrument="lab run 12",
)
def test_robot_finds_the_block(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect(result["moved"]["vision"], "the vision tower's relative movement").above(0.01)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


GRADIENT = "test_gradient_reaches_the_tower/gradients"
CORRECT, OTHER = "standardised patches", "something else"


@wrong_fix(
    "requires_grad_on_the_copy",
    says="The copy now requires a gradient and gets one. But it is a leaf: the graph ends there, so the tower still gets none.",
)
def recognise_leaf(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENT]
    of_base = {name.partition(".")[0] for name in seen["norms"]} == set(PARTS)
    is_leaf = seen["at_projector"] is not None and seen["at_tower"] is None
    return is_leaf and of_base and read_by_projector(evidence) == {CORRECT}


@wrong_fix(
    "loss_of_its_own",
    says="The tower has a gradient now, but not from the actions: no gradient that goes through the projector reaches it. It learns something other than the task.",
)
def recognise_second_loss(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENT]
    return not seen["reaches_projector"] and seen["at_tower"] is not None


@wrong_fix(
    "straight_through",
    says="The forward pass is correct and the tower gets a gradient, but it is the projector's gradient, unchanged: the division by the standard deviation is missing.",
)
def recognise_straight_through(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[GRADIENT]
    unchanged = relative_error(seen["at_tower"], seen["at_projector"]) < TOLERANCE
    return unchanged and read_by_projector(evidence) == {CORRECT}


@wrong_fix(
    "no_standardising",
    says="The gradient reaches the tower only because the projector now reads the raw patches. This policy must standardise them.",
)
def recognise_no_standardising(evidence: Mapping[str, Any]) -> bool:
    return read_by_projector(evidence) == {"the raw patches"}


@wrong_fix(
    "batch_statistics",
    says="The patches are standardised with the statistics of their own batch, not with the running statistics: the features of a frame would depend on the rest of its batch.",
)
def recognise_batch_statistics(evidence: Mapping[str, Any]) -> bool:
    return read_by_projector(evidence) == {"patches standardised by their own batch"}


def read_by_projector(evidence: Mapping[str, Any]) -> set[str]:
    """What reached the projector in training, from the second batch on."""
    return {
        evidence[f"test_patches_are_standardised/what the projector reads (step {number} from scratch: {step})"]
        for number, step in enumerate(FROM_SCRATCH, start=1)
        if step.training and number > 1
    }


class Standardise(nn.Module):
    """The docstring's layer: the batch first moves the statistics in training, and is then standardised with them."""

    mean: Tensor
    std: Tensor
    batches_seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(CHANNELS))
        self.register_buffer("std", torch.ones(CHANNELS))
        self.register_buffer("batches_seen", torch.zeros((), dtype=torch.long))

    def forward(self, patches: Tensor) -> Tensor:
        """Standardised patches of the same shape."""
        if self.training:
            rows = patches.detach().flatten(0, 1)
            share = MOMENTUM if int(self.batches_seen) else 1.0
            self.mean = self.mean + share * (rows.mean(dim=0) - self.mean)
            self.std = self.std + share * (rows.std(dim=0) - self.std)
            self.batches_seen = self.batches_seen + 1
        return (patches - self.mean) / self.std.clamp(min=SMALLEST_STD)


class Reference(Policy):
    """The healthy policy with the reference's layer."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.standardise = Standardise()

    def embed_images(self, pixel_values: Tensor) -> Tensor:
        """Image patches as inputs of the language model, standardised before the projector."""
        return self.projector(self.standardise(self.vision(pixel_values=pixel_values).last_hidden_state))


def statistics(rng: Rng) -> dict[str, Tensor]:
    """What a checkpoint holds after some batches."""
    std = rng.uniform(CHANNELS, low=0.5, high=3.0)
    std[HARDLY_VARIES] = SMALLEST_STD / 10
    return {"mean": rng.normal(CHANNELS), "std": std, "batches_seen": torch.tensor(rng.integer(1, 100))}


def inputs_of(steps: tuple[Step, ...], rng: Rng) -> list[dict[str, Any]]:
    """Random patches for each step, of another mean and spread in every channel and batch."""
    inputs = []
    for step in steps:
        shape = (step.frames, step.patches, CHANNELS)
        patches = rng.normal(CHANNELS) + rng.normal(*shape) * rng.uniform(CHANNELS, low=0.5, high=3.0)
        patches[..., HARDLY_VARIES] = 0.5 + rng.normal(*shape[:2], std=SMALLEST_STD / 4)
        upstream = rng.normal(*shape) if step.backward else None
        inputs.append({"patches": patches, "training": step.training, "upstream": upstream})
    return inputs


def reference_steps(inputs: list[dict[str, Any]], before: dict[str, Tensor] | None) -> list[dict[str, Any]]:
    """What the probe `standardised` should return."""
    layer, found = Standardise(), []
    if before is not None:
        layer.load_state_dict(before)
    for step in inputs:
        given = layer.train(step["training"])(step["patches"])
        upstream = step["upstream"]
        gradient = None if upstream is None else upstream / layer.std.clamp(min=SMALLEST_STD)
        found.append({"given": given, "gradient": gradient, "statistics": dict(layer.state_dict())})
    return found


def explain(given: Any, patches: Tensor, right: Mapping[str, Tensor]) -> str:
    """Which tensor the projector received, in words."""
    rows = patches.flatten(0, 1)
    candidates = {
        CORRECT: right["given"],
        "the raw patches": patches,
        "patches standardised by their own batch": (patches - rows.mean(dim=0))
        / rows.std(dim=0).clamp(min=SMALLEST_STD),
    }
    for name, value in candidates.items():
        if isinstance(given, Tensor) and given.shape == value.shape and relative_error(given, value) < TOLERANCE:
            return name
    return OTHER


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The difference relative to the size of `wanted`, in the channel (the last dimension) in which it is largest."""
    rows = tuple(range(wanted.dim() - 1))
    return float(((found - wanted).norm(dim=rows) / wanted.norm(dim=rows)).max())


def expect_equal(found: Any, wanted: Tensor, what: str) -> None:
    """Equal up to rounding, relative to the size of `wanted`."""
    expect(found, what).has_shape(*wanted.shape)
    expect(relative_error(found, wanted), f"the relative error of {what}").at_most(TOLERANCE)
