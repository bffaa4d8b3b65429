"""What must hold for a policy with an action decoder. Runs in the grader's process and never sees the learner's code.

The reference is the healthy policy with a decoder of PyTorch's own layers. Both get the same random parameters, so each
chunk, loss and gradient has one correct value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    TOLERANCE,
    expect_equal,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    listed,
    random_batch,
)
from labs.vla.heads import ActionHead, mean_over_steps
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig

OVERFIT_STEPS = 40
SMALLEST_MOVEMENT = 0.01
"""Relative to the size of a layer. Weight decay alone moves it by less than 0.0004 in these steps."""
OTHER_SIZES = {"horizon": 6, "action_dim": 5, "decoder_heads": 2}


@dataclass(frozen=True)
class Case:
    """One policy and the batch that it is given."""

    layers: int
    frames: int
    padded: str = "some"
    training: bool = False
    other: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        frames = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        mode = "training" if self.training else "evaluation"
        other = "".join(f", {name} {number}" for name, number in self.other)
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        return f"{layers}, {frames}, {self.padded} padded steps, {mode} mode{other}"

    @property
    def sizes(self) -> dict[str, int]:
        """The configuration's arguments."""
        return {"decoder_layers": self.layers, **dict(self.other)}


FOUR, SIX, TRAINING = Case(4, 5), Case(6, 1, padded="no"), Case(5, 4, training=True)
THREE = Case(3, 2, padded="only")
CASES = (FOUR, SIX, TRAINING, THREE, Case(2, 3, other=tuple(OTHER_SIZES.items())), Case(1, 2))


@check(
    kind="behaviour",
    title="The decoder has the configured layers",
    property="A decoder of L layers must have L layers, and the policy no other parameters than the shipped one.",
    instrument="python -c 'from policy import *; print(build_policy(0, layers=3).head)'",
)
def test_decoder_has_its_layers(submission: Submission, rng: Rng) -> None:
    several = {"decoder_layers": rng.integer(5, 8), "decoder_heads": 8}
    for sizes in ({}, {"decoder_layers": 2, **OTHER_SIZES}, several):
        reference = Reference(ReferenceConfig(**sizes))
        seen, asked = submission.observe("configured", sizes=sizes), reference.config.decoder_layers
        expect(seen["layers"], f"the number of layers of a decoder of {asked}").equals(asked)
        expect(seen["horizon"], "the head's horizon").equals(reference.config.horizon)
        found = {name: list(values.shape) for name, values in seen["parameters"].items()}
        shapes = {name: list(values.shape) for name, values in reference.shipped().items()}
        expect(listed(shapes.keys() - found.keys()), "what is missing from the parameters").equals("nothing")
        expect(listed(found.keys() - shapes.keys()), "what the parameters have too many").equals("nothing")
        changed = {f"{name}: {found[name]}, not {shape}" for name, shape in shapes.items() if found[name] != shape}
        expect(listed(changed), "what has another shape").equals("nothing")


@check(
    kind="behaviour",
    title="The action is read from the last layer",
    property="The chunk must be the final norm and the linear layer applied to the output of the last decoder layer, for any number of layers. The decoder must return its states first to last, (L, B, H, D), or the last one alone, (B, H, D).",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_action_comes_from_the_last_layer(submission: Submission, rng: Rng) -> None:
    everything = []
    for case, reference, batch, seen in observe("acted", submission, rng):
        with torch.no_grad():
            states = reference.states(batch)
            chunks = reference.chunks(states)
        expect(explain(seen["chunk"], chunks), f"what the chunk is ({case})")
        everything.append((case, seen, states, chunks))
    for case, seen, states, chunks in everything:
        expect_equal(seen["chunk"], chunks[-1], f"the chunk ({case})")
        alone = isinstance(seen["states"], Tensor) and seen["states"].dim() == 3
        wanted = states[-1] if alone else states
        expect_equal(seen["states"], wanted, f"what the decoder returned ({case})")


@check(
    kind="behaviour",
    title="The loss is computed from the last layer's chunk",
    property="The loss must be the smooth L1 of the last decoder layer's chunk, in units of the actions' spread, averaged over the steps that are not padding. Every parameter must get its derivative.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_loss_comes_from_the_last_layer(submission: Submission, rng: Rng) -> None:
    everything = []
    for case, reference, batch, seen in observe("differentiated", submission, rng):
        losses = reference.losses(batch)
        losses[-1].backward()
        expect(explain(seen["loss"], losses.detach()), f"what the loss is ({case})")
        everything.append((case, seen, losses[-1].detach(), reference.shipped(gradients=True)))
    for case, seen, loss, gradients in everything:
        expect(seen["loss"], f"the loss ({case})").close_to(loss, rtol=TOLERANCE, atol=1e-6)
        expect_gradients(seen["gradients"], gradients, case)


@check(
    kind="behaviour",
    title="A loss on every state trains the layers below it",
    property="Each state that the decoder returns must pass its gradient to all layers below it, to the queries and to the memory, so that a separate loss for each state is possible.",
    instrument="python -c 'from policy import *; head = build_policy(0).head; head.decoder(torch.randn(1, 17, 64))[0].sum().backward(); print([layer.mlp[0].weight.grad is not None for layer in head.decoder.layers])'",
)
def test_every_state_has_a_gradient(submission: Submission, rng: Rng) -> None:
    for layers, training in ((4, True), (rng.integer(2, 4), False)):
        reference = random_reference({"decoder_layers": layers}, rng)
        memory = rng.normal(3, 5, reference.config.width)
        weights = rng.normal(layers, 3, reference.config.horizon, reference.config.width)
        seen = submission.observe(
            "decoded",
            memory=memory,
            weights=weights,
            sizes={"decoder_layers": layers},
            parameters=reference.shipped(),
            training=training,
        )
        states = reference.head.decoder(memory.requires_grad_())
        (states[-1] * weights[-1] if seen["alone"] else states * weights).sum().backward()
        gradients = {name: value for name, value in reference.shipped(gradients=True).items() if value is not None}
        mode = "training" if training else "evaluation"
        said = f"a loss on every state that the decoder returns, {layers} layers, {mode} mode"
        expect_gradients(seen["gradients"], {**gradients, "memory": memory.grad}, said)


@check(
    kind="invariant",
    title="The decoder is drawn from the seed",
    property="`build_policy` must give the pretrained base and four layers, or as many as the caller says, whose weights depend on the seed and nothing else.",
    instrument="python -c 'from policy import *; print(build_policy(0).head.decoder.queries[0, :4])'",
)
def test_decoder_is_drawn_from_the_seed(submission: Submission, rng: Rng) -> None:
    seed, layers = rng.seed(), rng.integer(5, 8)
    one, again, another = (submission.observe("built", seed=number) for number in (seed, seed, seed + 1))
    expect(layers_in(one), "the number of layers without the argument `layers`").equals(4)
    expect(layers_in(submission.observe("built", seed=seed, layers=layers)), f"the number of layers, {layers},").equals(
        layers
    )
    random = {name for name in one if name.startswith("head.") and (one[name].dim() == 2)}
    changed = {name for name in one if not torch.equal(one[name], again[name])}
    expect(listed(changed), "what differs between two policies of one seed").equals("nothing")
    same = {name for name in random if torch.equal(one[name], another[name])}
    expect(listed(same), "what is equal for two seeds").equals("nothing")
    twins = {
        name for name in random if ".layers.0." in name and torch.equal(one[name], one[name.replace(".0.", ".1.", 1)])
    }
    expect(listed(twins), "what the second layer copies from the first").equals("nothing")
    base = dict(Policy.from_base().named_parameters())
    strange = {name for name in one if not name.startswith("head.") and not torch.equal(one[name], base[name])}
    expect(listed(strange), "what differs from the pretrained base").equals("nothing")


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


LAYERS = "test_decoder_has_its_layers/the number of layers of a decoder of 4"
CHUNK = "test_action_comes_from_the_last_layer/what the chunk is ({})"
LOSS = "test_loss_comes_from_the_last_layer/what the loss is ({})"


@wrong_fix(
    "mean_over_layers",
    says="Every layer has a gradient now, because the chunk is the mean of all states. But a decoder refines its output layer by layer: its first guess does not belong in the answer.",
)
def recognise_mean(evidence: Mapping[str, Any]) -> bool:
    return {evidence[CHUNK.format(case)] for case in (FOUR, SIX, TRAINING)} == {"the mean of all layers"}


@wrong_fix(
    "second_layer",
    says="This is another layer than before, but still not the last: the layers above it are computed and thrown away.",
)
def recognise_other_layer(evidence: Mapping[str, Any]) -> bool:
    read = evidence[CHUNK.format(FOUR)]
    same = read == evidence[LOSS.format(FOUR)] and evidence[CHUNK.format(TRAINING)] != "layer 5 of 5"
    return read in ("layer 2 of 4", "layer 3 of 4") and same and evidence[LAYERS] == 4


@wrong_fix(
    "fourth_layer",
    says="This is correct for a decoder of four layers and for no other: the number of layers is set in the configuration.",
)
def recognise_literal(evidence: Mapping[str, Any]) -> bool:
    at_four, at_six = evidence[CHUNK.format(FOUR)], evidence[CHUNK.format(SIX)]
    return (at_four, at_six) == ("layer 4 of 4", "layer 4 of 6") and CHUNK.format(THREE) not in evidence


@wrong_fix(
    "one_layer",
    says="The layers that did nothing are gone, but the configured decoder has four. They did nothing because nothing read their output.",
)
def recognise_deleted(evidence: Mapping[str, Any]) -> bool:
    return evidence[LAYERS] == 1


@wrong_fix(
    "loss_on_every_layer",
    says="Every layer has a gradient, since each has a separate loss now. But the robot still acts on the first layer's state, and the others are thrown away.",
)
def recognise_deep_supervision(evidence: Mapping[str, Any]) -> bool:
    of_all = ("the mean of all layers", "the sum of all layers")
    return evidence[CHUNK.format(FOUR)] == "layer 1 of 4" and evidence[LOSS.format(FOUR)] in of_all


@dataclass(frozen=True)
class ReferenceConfig(PolicyConfig):
    """The sizes that the lesson names, with their defaults."""

    decoder_layers: int = 4
    decoder_heads: int = 4


class ReferenceDecoder(nn.Module):
    """Pre-norm layers: the queries attend to each other, then to the memory, then comes an MLP of twice the width."""

    def __init__(self, config: ReferenceConfig) -> None:
        super().__init__()
        width = config.width
        self.queries = nn.Parameter(torch.zeros(config.horizon, width))
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(
                width,
                config.decoder_heads,
                2 * width,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.decoder_layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, memory: Tensor) -> Tensor:
        """The normalised state after each layer, (L, B, H, D)."""
        state, states = memory[:, -1:] + self.queries, []
        for layer in self.layers:
            state = layer(state, memory)
            states.append(self.norm(state))
        return torch.stack(states)


class ReferenceHead(ActionHead):
    """The decoder and the linear layer."""

    def __init__(self, config: ReferenceConfig) -> None:
        super().__init__(config.horizon, config.action_dim)
        self.decoder = ReferenceDecoder(config)
        self.to_action = nn.Linear(config.width, config.action_dim)


NAMES = {
    "self_attn.": "self_attention.",
    "multihead_attn.": "cross_attention.",
    "linear1.": "mlp.0.",
    "linear2.": "mlp.2.",
    "norm1.": "self_norm.",
    "norm2.": "cross_norm.",
    "norm3.": "mlp_norm.",
}
"""The parameters of PyTorch's decoder layer, and what the shipped layer calls them."""


class Reference(Policy):
    """The healthy policy with the reference's head."""

    config: ReferenceConfig

    def build_head(self) -> ReferenceHead:
        return ReferenceHead(self.config)

    def states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The normalised state after each decoder layer, (L, B, H, D)."""
        embeddings, mask = self.embed_prefix(**{name: batch[name] for name in OBSERVATION_KEYS})
        hidden = self.run_language_model(embeddings, mask)
        patches = hidden.shape[1] - batch["input_ids"].shape[1] - 1
        return self.head.decoder(torch.cat([hidden[:, :patches], hidden[:, -1:]], dim=1))

    def chunks(self, states: Tensor) -> Tensor:
        """Each state's chunk in environment units, (L, B, H, A)."""
        return self.action_statistics.unnormalize(self.head.to_action(states))

    def losses(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The loss that each state's chunk would have, (L,)."""
        target = self.action_statistics.normalize(batch["action"])
        losses = [
            mean_over_steps(
                F.smooth_l1_loss(self.head.to_action(state), target, beta=0.1, reduction="none").mean(dim=-1),
                batch["action_is_pad"],
            )
            for state in self.states(batch)
        ]
        return torch.stack(losses)

    def shipped(self, *, gradients: bool = False) -> dict[str, Tensor]:
        """Every parameter, or its gradient, by the shipped policy's name."""
        return {
            shipped_name(name): parameter.grad if gradients else parameter.detach()
            for name, parameter in self.named_parameters()
        }


def shipped_name(name: str) -> str:
    """The name in the shipped policy of one of the reference's parameters."""
    for ours, theirs in NAMES.items():
        name = name.replace(f".{ours}", f".{theirs}") if ".decoder.layers." in name else name
    return name


def observe(
    probe: str, submission: Submission, rng: Rng
) -> Iterator[tuple[Case, Reference, dict[str, Tensor], dict[str, Any]]]:
    """For each case: the reference, the batch, and what the probe measured of the submission with its parameters."""
    for case in CASES:
        reference = random_reference(case.sizes, rng)
        batch = batch_of(case, rng)
        seen = submission.observe(
            probe, batch=batch, sizes=case.sizes, parameters=reference.shipped(), training=case.training
        )
        yield case, reference, batch, seen


def random_reference(sizes: Mapping[str, int], rng: Rng) -> Reference:
    """The base with a reference's head of these sizes in which no parameter is zero."""
    reference = Reference.from_base(ReferenceConfig(**sizes), seed=rng.seed())
    with torch.no_grad():
        for parameter in reference.head.parameters():
            parameter += rng.normal(*parameter.shape, std=0.5 if parameter.dim() == 1 else 0.05)
        reference.head.decoder.queries += rng.normal(*reference.head.decoder.queries.shape)
    return reference


def batch_of(case: Case, rng: Rng) -> dict[str, Tensor]:
    """A random batch with instructions of different lengths and the case's padded steps."""
    config = ReferenceConfig(**case.sizes)
    batch = random_batch(rng, case.frames, horizon=config.horizon, action_dim=config.action_dim)
    words = batch["input_ids"].shape[1]
    batch["attention_mask"] = (torch.arange(words) < rng.integers(3, words + 1, case.frames, 1)).long()
    steps = {
        "no": rng.integers(config.horizon, config.horizon + 1, case.frames, 1),
        "some": rng.permutation(case.frames)[:, None] % config.horizon,
        "only": rng.integers(0, 1, case.frames, 1),
    }[case.padded]
    return {**batch, "action_is_pad": torch.arange(config.horizon) >= steps}


def expect_gradients(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], case: Case | str) -> None:
    """Every parameter's gradient must be the reference's, up to rounding."""
    expect(listed(wanted.keys() - found.keys()), f"what has no gradient ({case})").equals("nothing")
    total = float(torch.stack([gradient.norm() for gradient in wanted.values()]).norm())
    zero = {name for name, gradient in wanted.items() if total > 0 and gradient.any() and not found[name].any()}
    zeros = {f"layer {int(name.split('.')[3]) + 1}" for name in zero if ".layers." in name and "decoder" in name}
    expect(listed(zeros), f"what has a gradient of exactly zero ({case})").equals("nothing")
    other = {
        name
        for name, gradient in wanted.items()
        if not float((found[name] - gradient).norm()) <= TOLERANCE * float(gradient.norm()) + 1e-5 * total
    }
    expect(listed(other), f"what has another gradient than the loss ({case})").equals("nothing")


def explain(found: Any, of_layers: Tensor) -> str:
    """Which layer's chunk or loss was found, in words."""
    layers = len(of_layers)
    candidates = {f"layer {number} of {layers}": one for number, one in enumerate(of_layers, start=1)}
    candidates |= {"the mean of all layers": of_layers.mean(dim=0), "the sum of all layers": of_layers.sum(dim=0)}
    for name, one in candidates.items():
        if isinstance(found, Tensor) and found.shape == one.shape and torch.allclose(found, one, rtol=1e-3, atol=1e-5):
            return name
    return "something else"


def layers_in(names: Mapping[str, Any]) -> int:
    """How many decoder layers have parameters of these names."""
    return len({name.split(".")[3] for name in names if name.startswith("head.decoder.layers.")})
