"""What must hold for a policy with place codes on its patches. Runs in the grader's process.

The reference is the same policy elsewhere: on a second device, and in another policy that loaded its checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_step_on_a_second_device, padded_batch, random_batch
from labs.vla.policy import OBSERVATION_KEYS, Policy

REACH, GAIN, BANDWIDTH = 0.15, 0.5, 0.5
LOSS_BAR = 0.3


@check(
    kind="behaviour",
    title="The step runs on a second device, forward and backward",
    property="With the policy and the batch on another device, also after a run on the CPU, no tensor may be left on the CPU, and forward and backward must both complete.",
    instrument="debugkit.simulate_device(policy, batch)",
)
def test_runs_on_a_second_device(submission: Submission, rng: Rng) -> None:
    expect_step_on_a_second_device(submission, random_batch(rng, rng.integer(2, 5)), rng.seed())


@check(
    kind="behaviour",
    title="A checkpoint restores the codes the policy was trained with",
    property="A policy built from another seed that loads the checkpoint must give every patch exactly the code and the mark it had, whether or not it ran before with its own.",
    instrument="debugkit.check(policy, batch, select=['DK005'])",
)
def test_checkpoint_restores_the_codes(submission: Submission, rng: Rng) -> None:
    submission.observe("held")
    for loaded, ran, training in (
        ("the loaded policy", False, True),
        ("the loaded policy, which ran before with its own codes,", True, True),
        ("the loaded policy, which ran before in evaluation mode with its own codes,", True, False),
    ):
        size = rng.integer(2, 6) if ran else 1
        patches, arm, gain = rng.normal(size, 16, 64), rng.uniform(size, 2), rng.uniform(64, low=0.5, high=1.0)
        asked = {"patches": patches, "arm": arm, "gain": gain, "seed": rng.integer(0, 10**6)}
        seen = submission.observe("restored", ran=ran, training=training, **asked)
        expect(seen["restored"], f"the coded patches of {loaded}").has_shape(size, 16, 64)
        expect(
            patches_apart(seen["restored"], seen["saved"]),
            f"of {16 * size} patches, the number that {loaded} codes in another way",
        ).equals(0)


@check(
    kind="behaviour",
    title="Codes belong to places, not to the sensor",
    property="Patches must be turned upright and get `gain` times a random Fourier feature of their place, and `mark` times a number that fades from 1 with the distance to the arm.",
    instrument="python -c 'from policy import *; x = torch.zeros(1, 16, 64); print(build_policy(0).places(x, torch.zeros(1, 2))[0, :, :4])'",
)
def test_codes_are_codes_of_places(submission: Submission, rng: Rng) -> None:
    for side, width, turns in ((rng.integer(8, 12), 64, 0), (9, 32, 1), (8, 16, 2), (8, 32, 3)):
        patches, arm = rng.normal(2, side * side, width), rng.uniform(2, 2)
        gain, mark = rng.uniform(width, low=0.5, high=1.0), rng.uniform(width, low=0.5, high=1.0)
        zeros, one, seed = torch.zeros(2, side * side, width), torch.ones(width), rng.seed()
        asked = {"arm": arm, "seed": seed, "quarter_turns": turns}
        codes = submission.observe("placed", patches=zeros, gain=one, mark=0 * mark, **asked)
        expect(codes, "the codes").has_shape(2, side * side, width)
        features = fourier(codes[0], side)
        what = f"of {2 * side * side} places on a grid of {side} by {side}, the number whose code is no Fourier feature"
        expect(patches_apart(codes, features.expand_as(codes)), what).equals(0)
        given = submission.observe("placed", patches=patches, gain=gain, mark=mark, **asked)
        expected = turned(patches, turns) + gain * features + mark * nearness(arm, side)
        what = f"of {2 * side * side} patches of a camera rotated {times(turns)}, the number placed, coded or marked in another way"
        expect(patches_apart(given, expected), what).equals(0)
        later = submission.observe("placed", patches=patches, gain=gain, mark=mark, ran=True, **asked)
        what = f"of {2 * side * side} patches, the number coded in another way in evaluation mode, after a run with another gain and mark,"
        expect(patches_apart(later, expected), what).equals(0)


@check(
    kind="behaviour",
    title="Frequencies are random, with the given bandwidth",
    property=f"Frequencies must be random with a standard deviation of {BANDWIDTH} periods across the table, and depend on the seed.",
    instrument="python -c 'from policy import *; x = torch.zeros(1, 16, 64); print([build_policy(seed).places(x, torch.zeros(1, 2))[0, 1, :6] for seed in (0, 1)])'",
)
def test_frequencies_are_random(submission: Submission, rng: Rng) -> None:
    side, width, seed = 10, 2048, rng.seed()
    asked = {"arm": torch.full((1, 2), 1e3), "gain": torch.ones(width), "mark": torch.zeros(width), "quarter_turns": 0}
    drawn = []
    for one in (seed, seed + 1):
        codes = submission.observe("placed", patches=torch.zeros(1, side * side, width), seed=one, **asked)
        expect(codes, "the codes").has_shape(1, side * side, width)
        drawn.append(frequencies_of(codes[0], side))
    expect(drawn[0].mean().abs(), "the mean of 2048 frequencies, without its sign,").at_most(BANDWIDTH / 6)
    expect(drawn[0].std(), "the standard deviation of 2048 frequencies").between(0.85 * BANDWIDTH, 1.15 * BANDWIDTH)
    same = int(((drawn[0] - drawn[1]).abs() < 1e-4).sum())
    expect(same, "the number of 2048 frequencies that are equal for two seeds").below(100)


@check(
    kind="behaviour",
    title="A checkpoint does not hold the camera's mounting",
    property="A policy whose camera is rotated in another way must keep its own order of patches when it loads a checkpoint.",
    instrument="python -c 'from policy import *; print(build_policy(0).places.state_dict().keys())'",
)
def test_mounting_is_not_loaded(submission: Submission, rng: Rng) -> None:
    patches, far = rng.normal(1, 16, 64), torch.full((1, 2), 1e3)
    for turns in ([0, 1], [3, rng.integer(0, 3)]):
        seen = submission.observe("remounted", patches=patches, arm=far, seed=rng.seed(), turns=turns)
        expect(seen["loaded"], "the coded patches after loading").has_shape(1, 16, 64)
        codes = seen["saved"] - turned(patches, turns[0])
        what = (
            f"of 16 patches of a camera rotated {times(turns[1])}, the number placed or coded in another way "
            f"after loading the checkpoint of one rotated {times(turns[0])}"
        )
        expect(patches_apart(seen["loaded"], turned(patches, turns[1]) + codes), what).equals(0)


@check(
    kind="behaviour",
    title="A checkpoint without codes does not load",
    property="Loading a checkpoint that holds gain and mark but no codes must raise an error, because its language model would get codes that it cannot read.",
    instrument='python -c \'from policy import *; p = build_policy(0); print(p.load_state_dict({k: v for k, v in p.state_dict().items() if not k.startswith("places.") or k in ("places.gain", "places.mark")}))\'',
)
def test_checkpoint_without_codes_is_refused(submission: Submission, rng: Rng) -> None:
    raised = submission.observe("loaded_without_codes", seed=rng.integer(0, 10**6))
    expect(raised is None, "whether a checkpoint without codes loads without an error").is_false()


@check(
    kind="behaviour",
    title="The rest is the pretrained base",
    property="Without codes the prefix, its mask, the loss, its gradients and the chunk must be those of the base with the gripper's mark, for any batch.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_rest_is_the_base(submission: Submission, rng: Rng) -> None:
    for size, marked in ((1, True), (rng.integer(2, 6), True), (3, False)):
        batch, seed = padded_batch(rng, size), rng.seed()
        lengths = rng.integers(3, 9, size)
        batch["attention_mask"] = (torch.arange(8)[None] < lengths[:, None]).long()
        mark = rng.normal(64) * marked
        seen = submission.observe("without_codes", batch=batch, mark=mark, seed=seed)
        stock = _Marked.from_base(seed=seed).eval()
        stock.mark = mark
        with torch.no_grad():
            prefix, mask = stock.embed_prefix(*(batch[name] for name in OBSERVATION_KEYS))
            chunk = stock.predict(batch)
        loss = stock(**batch).loss
        assert loss is not None
        parts = [next(part.parameters()) for part in (stock.vision, stock.projector)]
        gradients = torch.autograd.grad(loss, parts)
        frames = f"{size} frame{'s' * (size > 1)}"
        expect(seen["prefix"], f"the prefix of {frames}").has_shape(*prefix.shape)
        other = patches_apart(seen["prefix"], prefix)
        expect(
            other, f"of {prefix.shape[0] * prefix.shape[1]} tokens in the prefix of {frames}, the number that differs"
        ).equals(0)
        expect(seen["mask"], f"the mask of {frames}").equals(mask)
        expect(seen["loss"], f"the loss of {frames}").close_to(loss, rtol=1e-4, atol=1e-6)
        for name, gradient in zip(("vision", "projector"), gradients, strict=True):
            expect(seen[name], f"the gradient in `{name}`").has_shape(*gradient.shape)
            error = float((seen[name] - gradient).abs().max() / gradient.abs().max())
            expect(error, f"the relative error of the gradient in `{name}` for {frames}").at_most(1e-3)
        expect(seen["chunk"], f"the chunk of {frames}").close_to(chunk, rtol=1e-4, atol=1e-5)


@check(
    kind="invariant",
    title="Gain and mark train, the codes do not",
    property="The place codes must have two trainable parameters with one number per channel, and an optimizer step must move both and leave the codes unchanged.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_codes_stay_as_drawn(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("after_a_step", batch=random_batch(rng, 4), seed=rng.integer(0, 10**6))
    shapes = submission.observe("trainable")
    others = ", ".join(sorted(set(shapes) - {"gain", "mark"})) or "none"
    expect(others, "what trains in the place codes besides gain and mark").equals("none")
    expect(shapes, "the shapes of the place codes' trainable parameters").equals({"gain": [64], "mark": [64]})
    start = submission.observe("at_start")
    for name, value in (("gain", GAIN), ("mark", 0.0)):
        expect(start[name], f"the initial {name}").close_to(torch.full((64,), value))
    expect(" and ".join(seen["moved"]) or "nothing", "what an optimizer step moved in the place codes").equals(
        "gain and mark"
    )
    drifted = patches_apart(seen["after"], seen["before"])
    expect(drifted, "of 16 places, the number whose code an optimizer step changed").equals(0)


@check(
    kind="invariant",
    title="The seed determines codes and head",
    property="The same seed must give the same codes and head whatever the caller's random state is, and another seed other ones.",
    instrument="python -c 'from policy import *; x = torch.zeros(1, 16, 64); print([build_policy(seed).places(x, torch.zeros(1, 2))[0, 1, :6] for seed in (0, 0, 1)])'",
)
def test_seed(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(0, 10**6)
    first, again, other = (
        submission.observe("built", seed=seed + more, state=state) for more, state in ((0, 1), (0, 2), (1, 1))
    )
    for name, what in (("codes", "the codes"), ("head", "the head's weights")):
        expect(again[name], f"{what} of a second policy with the same seed").close_to(first[name])
        expect(other[name], f"{what} of a policy with another seed").differs_from(first[name])


@check(
    kind="invariant",
    title="Policies of other sizes work",
    property="A policy with other images, patches and widths must have a code for each of its patches.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_other_sizes(submission: Submission, rng: Rng) -> None:
    size = {"image_size": 48, "patch_size": 8, "width": 32}
    batch = {**random_batch(rng, 2), "pixel_values": rng.normal(2, 3, 48, 48)}
    prefix = submission.observe("another_size", batch=batch, size=size)
    expect(prefix, "the prefix of two images of 6 by 6 patches with 8 words").has_shape(2, 36 + 8 + 1, 32)


@check(
    kind="outcome",
    title="A loaded policy is as good as the trained one",
    property=f"After a short training, saved and loaded into another policy, the loss on held-out frames must be below {LOSS_BAR}.",
    instrument="lab run 04",
)
def test_loaded_policy_is_the_trained_one(submission: Submission, seed: int) -> None:
    loss = submission.observe("restored_after_training", seed=seed)
    expect(loss["restored"], "the loss of the loaded policy").below(LOSS_BAR)


@wrong_fix(
    "moved_in_forward",
    says="It runs on any device now. But the codes are in no checkpoint: a policy that loads one uses codes that its language model has never seen.",
)
def recognise_move(evidence: Mapping[str, Any]) -> bool:
    held = evidence["held"]
    return runs(evidence) and loses_codes(evidence) and held["plain"] != [] and saves_no_codes(held)


@wrong_fix(
    "not_persistent",
    says="A buffer with persistent=False moves with the policy but is left out of its checkpoint. Use it for values that the constructor can compute again; these codes are random.",
)
def recognise_not_persistent(evidence: Mapping[str, Any]) -> bool:
    held = evidence["held"]
    return runs(evidence) and loses_codes(evidence) and held["not saved"] != [] and saves_no_codes(held)


@wrong_fix(
    "mounting_saved",
    says="The order of the patches is in the checkpoint now. It belongs to the camera: a robot whose camera is rotated in another way gets the order of the robot on which the policy was trained.",
)
def recognise_mounting(evidence: Mapping[str, Any]) -> bool:
    return "order" in evidence["held"]["saved"] and torch.equal(*evidence["remounted"].values())


@wrong_fix(
    "trained_table",
    says="As a parameter the table moves and is saved, but it also trains: the codes drift with every step. Use a parameter for learnt values and a buffer for fixed ones.",
)
def recognise_trained(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["after_a_step"]
    return [16, 64] in evidence["trainable"].values() and patches_apart(seen["after"], seen["before"]) > 0


@wrong_fix(
    "same_codes_for_all",
    says="The constructor can compute these codes again only because every policy now has the same ones: a constant in the program replaces what the checkpoint should hold.",
)
def recognise_constant(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["test_frequencies_are_random/placed"], evidence["built"]["codes"]
    first = evidence["test_seed/the codes of a second policy with the same seed"]
    return bool(seen[0].any()) and torch.equal(first, seen[1])


def runs(evidence: Mapping[str, Any]) -> bool:
    """Whether the step ran on the second device."""
    seen = evidence["second_device"]
    return not seen["strays"] and bool(seen["backward"])


def loses_codes(evidence: Mapping[str, Any]) -> bool:
    """Whether a loaded policy has other codes than the saved one."""
    seen: Mapping[str, Tensor] = evidence["restored"]
    return not torch.allclose(seen["saved"], seen["restored"], atol=1e-4)


def saves_no_codes(held: Mapping[str, list[str]]) -> bool:
    """Whether a checkpoint holds nothing of the place codes but gain, mark and order."""
    return set(held["saved"]) <= {"gain", "mark", "order"}


class _Marked(Policy):
    """The stock policy with the gripper's mark on its patches."""

    mark = torch.zeros(64)

    def embed_prefix(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        patches = self.embed_images(pixel_values) + self.mark * nearness(state[:, :2], 4)
        return self.join_prefix(patches, input_ids, attention_mask, state)


def times(turns: int) -> str:
    """How often a camera is rotated, in words."""
    return ("not at all", "once", "twice", "three times")[turns]


def patches_apart(measured: Tensor, expected: Tensor) -> int:
    """How many patches (…, D) of the two differ by more than rounding, and all for another shape."""
    if measured.shape != expected.shape:
        return expected[..., 0].numel()
    return int((~((measured - expected).abs() <= 1e-4).all(dim=-1)).sum())


def turned(patches: Tensor, turns: int) -> Tensor:
    """Patches (B, P, D) of a camera rotated by quarter turns, in the table's order."""
    side = int(patches.shape[1] ** 0.5)
    return patches.view(len(patches), side, side, -1).rot90(turns, dims=(1, 2)).reshape(patches.shape)


def centres(side: int) -> Tensor:
    """The centre (x, y) of each patch on a table one metre wide, row by row: (P, 2)."""
    index = torch.arange(side * side, dtype=torch.float64)
    return torch.stack([index % side, index // side], dim=-1).add(0.5).div(side)


def nearness(arm: Tensor, side: int) -> Tensor:
    """How near each patch is to the arm (B, 2): (B, P, 1)."""
    squares = (centres(side) - arm[:, None].double()).square().sum(dim=-1, keepdim=True)
    return torch.exp(-squares / REACH**2).float()


def frequencies_of(codes: Tensor, side: int) -> Tensor:
    """The frequencies (2, F) of codes (P, 2F), from the change of phase between neighbours; below side / 2."""
    sine, cosine = codes.double().view(side, side, -1).chunk(2, dim=-1)
    phase = torch.complex(cosine, sine)
    along_x, along_y = phase[0, 1] * phase[0, 0].conj(), phase[1, 0] * phase[0, 0].conj()
    return torch.stack([along_x.angle(), along_y.angle()]) / (2 * math.pi) * side


def fourier(codes: Tensor, side: int) -> Tensor:
    """The Fourier features (P, 2F) at the frequencies that these codes have between neighbours."""
    phase = 2 * math.pi * centres(side) @ frequencies_of(codes, side)
    return (math.sqrt(2) * torch.cat([phase.sin(), phase.cos()], dim=-1)).float()
