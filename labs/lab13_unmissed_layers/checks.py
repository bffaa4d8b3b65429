"""What must hold for a policy with an action decoder. Runs in the grader's process and never sees the learner's code.

The reference takes the output of each decoder layer and computes the rest here: the final norm, the linear layer, metres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    random_batch,
)
from labs.vla.normalization import ActionStatistics

OVERFIT_STEPS = 40
SMALLEST_MOVEMENT = 0.01
"""Of a layer's size. Weight decay alone moves it by less than 0.0004 in these steps."""


@check(
    kind="behaviour",
    title="The action is read from the last layer",
    property="The chunk must be the final norm and the linear layer applied to the output of the last decoder layer, for any number of layers.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_action_comes_from_the_last_layer(submission: Submission, rng: Rng) -> None:
    for layers in (4, 2, rng.integer(5, 7)):
        batch = random_batch(rng, rng.integer(2, 6))
        seen = submission.observe("states_and_chunk", batch=batch, seed=rng.seed(), layers=layers)
        chunks = [chunk_of(state, seen) for state in seen["states"]]
        expect(explain(seen["action"], chunks), f"what the chunk is read from, {layers} layers")
        expect(len(chunks), "the number of layers that ran").at_least(1)
        expect(seen["action"], f"the chunk of a decoder of {layers} layers").close_to(chunks[-1], rtol=1e-3, atol=1e-5)


@check(
    kind="behaviour",
    title="The loss is computed from the last layer's chunk",
    property="The loss must be the smooth L1 of the chunk that the last decoder layer gives, in units of the actions' spread.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_loss_comes_from_the_last_layer(submission: Submission, rng: Rng) -> None:
    for layers in (4, 3):
        batch = random_batch(rng, rng.integer(2, 6))
        seen = submission.observe("states_and_chunk", batch=batch, seed=rng.seed(), layers=layers)
        expect(len(seen["states"]), "the number of layers that ran").equals(layers)
        expect(seen["loss"], f"the loss of a decoder of {layers} layers").close_to(
            loss_of(chunk_of(seen["states"][-1], seen), batch), rtol=1e-3, atol=1e-5
        )


@check(
    kind="behaviour",
    title="Every layer gets a gradient that is not zero",
    property="After one backward pass every weight of every decoder layer must have a gradient that is not exactly zero.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_every_layer_gets_a_gradient(submission: Submission, rng: Rng) -> None:
    layers = rng.integer(3, 6)
    norms = submission.observe("gradients", batch=random_batch(rng, rng.integer(3, 7)), seed=rng.seed(), layers=layers)
    expect(
        sorted(name for name, norm in norms.items() if norm < 0), "the list of parameters without a gradient"
    ).equals([])
    weights = {name: norm for name, norm in norms.items() if ".layers." in name and name.startswith("head.")}
    weights = {name: norm for name, norm in weights.items() if name.endswith("weight")}
    zero = {name.split(".layers.")[1].split(".")[0] for name, norm in weights.items() if norm == 0}
    expect(len(weights), "the number of weights in the decoder's layers").at_least(layers)
    expect(len(zero), f"the number of layers, of {layers}, with a gradient of exactly zero").equals(0)
    expect(list(weights.values()), "the gradient norm of each weight in the decoder").above(1e-9)


@check(
    kind="invariant",
    title="The decoder has the configured number of layers",
    property="A decoder of L layers must have L layers, all of the same size, and no other parameters than the shipped one.",
    instrument="python -c 'from policy import *; print(build_policy(0, layers=3).head)'",
)
def test_decoder_has_its_layers(submission: Submission, rng: Rng) -> None:
    few, many = 2, rng.integer(3, 7)
    small, large = (submission.observe("parameter_counts", layers=layers) for layers in (few, many))
    layer = sum(count for name, count in small.items() if ".layers.1." in name)
    expect(layer, "the size of the second layer of two").above(0)
    expect(sum(large.values()) - sum(small.values()), f"the total size of {many - few} more layers").equals(
        (many - few) * layer
    )
    others = sorted(name for name in small if ".layers." not in name)
    expect(others, "the list of the head's other parameters").equals(
        ["decoder.norm.bias", "decoder.norm.weight", "decoder.queries", "to_action.bias", "to_action.weight"]
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
    kind="invariant",
    title="A frame does not depend on its neighbours",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="Every layer learns",
    property=f"In {OVERFIT_STEPS} steps on one batch every decoder layer must move by more than {SMALLEST_MOVEMENT:.0%} of its size, and the loss must halve.",
    instrument="lab run 13",
)
def test_every_layer_learns(submission: Submission, seed: int) -> None:
    seen = submission.observe("overfitted", seed=seed, steps=OVERFIT_STEPS)
    expect(seen["losses"], "the losses").has_shape(OVERFIT_STEPS)
    expect(seen["losses"][-1] / seen["losses"][0], "the share of the first loss that is left").below(0.5)
    moved = [
        float((after - before).norm() / before.norm())
        for before, after in zip(seen["before"], seen["after"], strict=True)
    ]
    expect(min(moved), "the movement of the layer that moved least").above(SMALLEST_MOVEMENT)


READ = "test_action_comes_from_the_last_layer/what the chunk is read from, 4 layers"
READ_OF_TWO = "test_action_comes_from_the_last_layer/what the chunk is read from, 2 layers"


@wrong_fix(
    "mean_over_layers",
    says="Every layer has a gradient now, because the chunk is the mean of all states. But a decoder refines its output layer by layer: its first guess does not belong in the answer.",
)
def recognise_mean(evidence: Mapping[str, Any]) -> bool:
    return evidence[READ] == "the mean of all layers"


@wrong_fix(
    "second_layer",
    says="This is another layer than before, but still not the last: the layers above it are computed and thrown away.",
)
def recognise_other_layer(evidence: Mapping[str, Any]) -> bool:
    return evidence[READ] in ("layer 2 of 4", "layer 3 of 4")


@wrong_fix(
    "fourth_layer",
    says="This is correct for a decoder of four layers and for no other: the number of layers is set in the configuration.",
)
def recognise_literal(evidence: Mapping[str, Any]) -> bool:
    return evidence[READ] == "layer 4 of 4" and evidence.get(READ_OF_TWO, "") != "layer 2 of 2"


@wrong_fix(
    "one_layer",
    says="The layers that did nothing are gone, but the configured decoder has four. They did nothing because nothing read their output.",
)
def recognise_deleted(evidence: Mapping[str, Any]) -> bool:
    return evidence[READ] == "layer 1 of 1"


@wrong_fix(
    "loss_on_every_layer",
    says="Every layer has a gradient, since each has a separate loss now. But the robot still acts on the first layer's state, and the others are thrown away.",
)
def recognise_deep_supervision(evidence: Mapping[str, Any]) -> bool:
    norms = evidence["test_every_layer_gets_a_gradient/gradients"]
    alive = all(norm > 0 for name, norm in norms.items() if ".layers." in name and name.endswith("weight"))
    return evidence[READ] == "layer 1 of 4" and alive


def chunk_of(state: Tensor, seen: Mapping[str, Any]) -> Tensor:
    """The reference: the chunk in metres (B, H, A) for a layer's state (B, H, D)."""
    (scale, shift), (weight, bias) = seen["norm"], seen["linear"]
    normed = F.layer_norm(state.double(), state.shape[-1:], scale.double(), shift.double())
    return ActionStatistics.tabletop().unnormalize(normed @ weight.double().T + bias.double()).float()


def loss_of(chunk: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The reference loss for a chunk in metres, with no padded step."""
    normalize = ActionStatistics.tabletop().normalize
    return F.smooth_l1_loss(normalize(chunk), normalize(batch["action"]), beta=0.1)


def explain(action: Tensor, chunks: Sequence[Tensor]) -> str:
    """Which layer's chunk equals the policy's chunk, in words."""
    candidates = {f"layer {index} of {len(chunks)}": chunk for index, chunk in enumerate(chunks, start=1)}
    if chunks:
        candidates["the mean of all layers"] = torch.stack(list(chunks)).mean(dim=0)
    for name, chunk in candidates.items():
        if action.shape == chunk.shape and torch.allclose(action, chunk, rtol=1e-3, atol=1e-5):
            return name
    return "something else"
