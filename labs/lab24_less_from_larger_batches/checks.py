"""What must hold for a reader of cameras. Runs in the grader's process and never sees the learner's code.

The reference has no mask: it attends, in float64, to the patches that show something and to no others. Both get the same
random weights, so each token and each gradient has one correct value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    WORDS,
    close,
    expect_equal,
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    listed,
    padded_batch,
    random_batch,
    relative_error,
)
from labs.policy_comparison import with_louder_head
from labs.vla.policy import Policy

Weights = Mapping[str, Tensor]

VISION_WIDTH, WIDTH, HEADS, CAMERAS, PATCHES = 64, 64, 4, 2, 16
LOUDER = 30.0
"""Outputs this large exceed the range of the demonstrated actions. Nothing may limit them."""
FAR_OFF = 10.0
"""What is added to actions so that the gradient's norm is well above the limit."""
OTHER_WIDTH = 40
"""A vision tower's width that is not the language model's."""
DTYPE_ROUNDING = {torch.float16: (0.005, 0.02), torch.bfloat16: (0.04, 0.1), torch.float64: (1e-5, 1e-5)}
"""The largest relative error of the tokens, and of a gradient, for each dtype."""
LEAST_LENGTH = 0.05
"""Relative to the longest gradient: the error of shorter ones is relative to this length."""
STEPS, LOSS_BAR = 40, 0.42
NOTHING = "nothing"


@dataclass(frozen=True)
class Case:
    """Which cameras the frames of a batch have, how sharp the attention is, and the mode of the module."""

    name: str
    frames: int
    mounted: str
    """`all`, `some` or `none` of the cameras; `one` frame in which one camera is missing; or `opposed`: all cameras,
    each with two patches whose scores are opposite numbers, of which the one with the lower score shows something."""
    training: bool = True
    sharpness: float = 1.0
    """What scales the attention's scores; the largest of them if the patches are `opposed`."""
    cameras: int = CAMERAS

    def __str__(self) -> str:
        return f"{self.name}, {'training' if self.training else 'evaluation'} mode"


ONE_MISSING = Case("one camera of one frame missing", 5, "one")
CASES = (
    Case("all cameras mounted", 3, "all"),
    Case("all cameras mounted", 3, "all", training=False),
    ONE_MISSING,
    Case("one camera of one frame missing", 1, "one"),
    Case("some cameras missing", 5, "some", training=False, cameras=3),
    Case("no camera mounted", 2, "none"),
    Case("sharp attention, some cameras missing", 16, "some", sharpness=100.0),
    Case("one camera, some missing", 6, "some", cameras=1),
    Case("sharp attention, opposite scores", 3, "opposed", sharpness=900.0),
)


@check(
    kind="behaviour",
    title="The tokens are those of the patches that show something",
    property="Each token must be attention over the camera's patches that show something, and over no other, or the learned token of a camera that is not mounted; for any number of cameras and frames, in both modes, also with scores in the hundreds, and where a patch that shows nothing has the highest score.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_tokens_equal_the_reference(submission: Submission, rng: Rng) -> None:
    for case in CASES:
        weights, asker, patches, shows = inputs_of(case, rng)
        given = {"weights": weights, "asker": asker, "patches": patches, "shows": shows, "training": case.training}
        tokens, wanted = submission.observe("reader", **given), reference(weights, asker, patches, shows)
        mounted = shows.any(dim=-1)
        expect(tokens, f"the tokens ({case})").has_shape(*wanted.shape)
        expect(attended(tokens, weights, asker, patches, shows), ATTENDED.format(case))
        expect(tokens, f"the tokens ({case})").finite()
        for which, kind in ((mounted, "mounted"), (~mounted, "missing")):
            if which.any():
                expect_equal(tokens[which], wanted[which], f"the tokens of {kind} cameras ({case})")


@check(
    kind="behaviour",
    title="Every weight of the reader gets its gradient",
    property="Each weight of the reader, the state's question and each patch must get the reference's gradient, whichever cameras are missing. It is zero for a patch that shows nothing.",
    instrument="debugkit.first_nonfinite(policy, batch)",
)
def test_gradients_of_the_reader(submission: Submission, rng: Rng) -> None:
    for case in CASES:
        weights, asker, patches, shows = inputs_of(case, rng)
        upstream = rng.normal(case.frames, case.cameras, WIDTH)
        given = {"weights": weights, "asker": asker, "patches": patches, "shows": shows, "upstream": upstream}
        found = submission.observe("differentiated", **given)
        wanted = reference_gradients(**given)
        learning = [name for name, value in found.items() if value.any()]
        expect(learning, f"the list of what has a gradient ({case})")
        strange = [name for name in wanted if name in found and not found[name].isfinite().all()]
        expect(strange, f"the list of what has a gradient that is not finite ({case})").equals([])
        for name, gradient in wanted.items():
            own = found.get(name, torch.zeros_like(gradient))
            exact = case.sharpness > 1 or close(
                own, gradient
            )  # where attention is sharp, float32 loses small gradients
            expect(exact, f"whether the gradient of {name} is the reference's ({case})").is_true()
        unseen = found["patches"][~shows] if "patches" in found else torch.zeros(1)
        expect(unseen, f"the gradient of the patches that show nothing ({case})").equals(torch.zeros_like(unseen))


@check(
    kind="behaviour",
    title="The reader works in every dtype",
    property="A reader that was cast to float16, bfloat16 or float64 must give the reference's tokens in that dtype, and finite gradients that are the reference's up to the rounding of the dtype, whether or not a camera is missing.",
    instrument="python -c 'from policy import *; shows = torch.ones(1, 2, 16, dtype=torch.bool); shows[0, 0] = False; x = torch.randn(1, 2, 16, 64).bfloat16(); print(CameraReader(64, 64).bfloat16()(x[:, 0, 0], x, shows).dtype)'",
)
def test_reader_in_every_dtype(submission: Submission, rng: Rng) -> None:
    for dtype, (own, part) in DTYPE_ROUNDING.items():
        for case in (CASES[0], ONE_MISSING):
            weights, asker, patches, shows = inputs_of(case, rng)
            upstream = rng.normal(case.frames, case.cameras, WIDTH).to(dtype)
            weights = {name: value.to(dtype) for name, value in weights.items()}
            given = {"weights": weights, "asker": asker.to(dtype), "patches": patches.to(dtype), "shows": shows}
            where = f"in {str(dtype).removeprefix('torch.')}, {case.name}"
            seen = submission.observe("in_dtype", **given, upstream=upstream)
            expect(seen["raised"], f"the error that the reader raises {where}").equals(None)
            wanted = reference(**given)
            expect(str(seen["tokens"].dtype), f"the dtype of the tokens {where}").equals(str(dtype))
            expect(seen["tokens"], f"the tokens {where}").has_shape(*wanted.shape)
            error = relative_error(seen["tokens"].double(), wanted.double())
            expect(error, f"the relative error of the tokens {where}").at_most(own)
            gradients = reference_gradients(**given, upstream=upstream)
            least = LEAST_LENGTH * max(float(value.double().norm()) for value in gradients.values())
            for name, gradient in gradients.items():
                found = seen["gradients"].get(name, torch.zeros_like(gradient))
                expect(found, f"the gradient of {name} {where}").finite()
                error = float((found.double() - gradient.double()).norm())
                error /= max(least, float(gradient.double().norm()))
                expect(error, f"the relative error of {name}'s gradient {where}").at_most(part)


@check(
    kind="behaviour",
    title="A batch teaches every weight of the policy",
    property="The loss must be the mean over the batch, and each weight must get that loss's gradient, whether or not a frame lacks a camera.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradients_of_the_policy(submission: Submission, rng: Rng) -> None:
    for missing, training in ((1, True), (0, True), (1, False)):
        weights, seed = random_weights(rng), rng.seed()
        batch = batch_of(rng, rng.integer(3, 6), missing)
        where = f"{missing} of the cameras missing, {'training' if training else 'evaluation'} mode"
        seen = submission.observe("gradients", weights=weights, batch=batch, seed=seed, training=training)
        wanted, gradients = reference_step(weights, batch, seed)
        strange = {name for name, value in seen["gradients"].items() if not value.isfinite().all()}
        expect(listed(strange), f"which gradient is not finite ({where})")
        expect(seen["loss"], f"the loss ({where})").close_to(wanted, rtol=1e-3)
        expect(listed(strange), f"which gradient is not finite ({where})").equals(NOTHING)
        expect(listed(gradients.keys() - seen["gradients"].keys()), f"what has no gradient ({where})").equals(NOTHING)
        other = {name for name, value in gradients.items() if not close(seen["gradients"][name], value, rtol=1e-2)}
        expect(listed(other), f"which gradient is not the batch's ({where})").equals(NOTHING)


@check(
    kind="invariant",
    title="A step is made from all frames, and clipped",
    property="`train_step` must make the documented step in the policy's current mode and return the loss: also from a batch in which each frame lacks a camera, and with the optimizer that it is given.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_step_is_the_documented_one(submission: Submission, rng: Rng) -> None:
    for plain in (True, False):
        weights, seed = random_weights(rng), rng.seed()
        stream = [batch_of(rng, 4, missing) for missing in ((4, 1, 0) if plain else (4, 1, 2))]
        if plain:
            stream = [{**batch, "action": batch["action"] + FAR_OFF} for batch in stream]
        seen = submission.observe("steps", weights=weights, stream=stream, plain=plain, seed=seed)
        losses, wanted, before = reference_steps(weights, stream, plain, seed)
        how = "SGD, training mode" if plain else "AdamW, evaluation mode"
        lost = {name for name in wanted if not seen["weights"][name].isfinite().all()}
        expect(listed(lost), f"which weight is not finite ({how})").equals(NOTHING)
        still = {name for name in wanted if torch.equal(seen["weights"][name], before[name])}
        expect(listed(still), f"which weight has not moved ({how})").equals(NOTHING)
        expect(torch.tensor(seen["losses"]), f"the returned losses ({how})").close_to(torch.tensor(losses), rtol=2e-2)
        expect(listed(differing(seen["weights"], wanted, before)), f"which weight moved elsewhere ({how})").equals(
            NOTHING
        )
        expect(seen["training"], f"whether the policy is in training mode after it ({how})").equals(plain)


@check(
    kind="invariant",
    title="A corrupt recording changes no weight",
    property="A step with a state that is NaN or Inf must leave every weight as it is, and the next step must be the documented one.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_corrupt_recording_is_left_out(submission: Submission, rng: Rng) -> None:
    weights, seed = random_weights(rng), rng.seed()
    given = {"weights": weights, "plain": True, "seed": seed}
    before = reference_steps(weights, [], True, seed)[1]
    whole = batch_of(rng, 3, missing=0)
    for value in (float("nan"), float("inf")):
        corrupt = batch_of(rng, 3, missing=0)
        corrupt["state"][1, 0] = value
        after = submission.observe("steps", stream=[corrupt], **given)["weights"]
        changed = {name for name, own in before.items() if not torch.equal(after[name], own)}
        expect(listed(changed), f"which weight a state that is {value} has changed").equals(NOTHING)
    later = submission.observe("steps", stream=[corrupt, whole], **given)["weights"]
    other = differing(later, reference_steps(weights, [whole], True, seed)[1], before)
    expect(listed(other), "which weight moved elsewhere in the step after it").equals(NOTHING)


@check(
    kind="invariant",
    title="The pretrained base with a fresh reader, all of it trained by AdamW",
    property="`build_policy` must give the pretrained base, and a reader and a head drawn from the seed, which is 0 by default, of the config's sizes; `build_optimizer` AdamW over every weight, with the documented settings.",
    instrument="python -c 'from policy import *; print(build_policy().reader)'",
)
def test_policy_is_the_documented_one(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(1, 10_000)
    one, again, default, zero = (submission.observe("built", seed=number) for number in (seed, seed, None, 0))
    own = one["weights"]
    shapes = {f"reader.{name}": list(value.shape) for name, value in random_weights(rng).items()}
    found = {name: list(value.shape) for name, value in own.items() if name.startswith("reader.")}
    expect(found, "the reader's weights and their shapes").equals(shapes)
    other = {name: list(value.shape) for name, value in random_weights(rng, vision=OTHER_WIDTH).items()}
    expect(
        submission.observe("reader_shapes", vision_width=OTHER_WIDTH),
        f"the shapes of the reader's weights for patches of width {OTHER_WIDTH}",
    ).equals(other)
    for same, what in ((again, f"of seed {seed}"), (default, "by default, and of seed 0")):
        first = zero if same is default else one
        changed = {name for name, value in first["weights"].items() if not torch.equal(value, same["weights"][name])}
        expect(listed(changed), f"what differs between two policies {what}").equals(NOTHING)
    drawn = {name for name in own if name.startswith(("reader.", "head.")) and "norm" not in name}
    equal = {name for name in drawn if torch.equal(own[name], zero["weights"][name])}
    expect(listed(equal), "what is equal for two seeds").equals(NOTHING)
    for name in ("camera", "absent"):
        size = own[f"reader.{name}"].std() * WIDTH**0.5
        expect(size, f"the spread of `{name}`, relative to the documented one").between(0.7, 1.4)
    base = Policy.from_base().state_dict()
    strange = {name for name, value in base.items() if "head." not in name and not torch.equal(own[name], value)}
    expect(listed(strange), "what differs from the pretrained base").equals(NOTHING)
    still = dict(Policy.from_base().named_parameters()).keys() | shapes.keys()
    expect(listed(still - set(one["trains"])), "what does not train").equals(NOTHING)
    expect(one["class"], "the optimizer").equals("AdamW")
    settings = [one["settings"][0], *one["settings"][1], one["settings"][2]]
    expect(settings, "its learning rate, betas and weight decay").equals([1e-3, 0.9, 0.95, 0.01])
    count = sum(value.numel() for name, value in own.items() if name in still)
    expect(one["optimized"], "the number of weights that it updates").equals(count)


@check(
    kind="invariant",
    title="Every camera that is mounted matters, and no other",
    property="Another image, another instruction and another view of a mounted camera must each change the predicted actions; a view of a camera that is not mounted, or a patch that shows nothing, must not.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_what_is_shown_matters(submission: Submission, rng: Rng) -> None:
    batch, weights = random_batch(rng, 3), random_weights(rng)
    views, shows = rig_of(rng, 3, missing=1)
    frame, camera = (int(index) for index in (~shows.any(dim=-1)).nonzero()[0])
    expect_image_and_instruction_to_matter(submission, rng, batch=batch, views=views, shows=shows, weights=weights)
    given = {"batch": batch, "shows": shows, "weights": weights, "seed": rng.seed()}
    rig = {**batch, "views": views, "shows": shows}
    seen = submission.observe("prediction", batch=rig, weights=weights, seed=given["seed"])
    chunk, wanted = seen["chunk"], reference_chunk(rig, weights, given["seed"])
    expect(chunk, "the action chunk").has_shape(*wanted.shape)
    expect(relative_error(chunk, wanted), "the relative error of the chunk").at_most(1e-2)
    expect(relative_error(seen["called"], wanted), "the relative error of `policy(**observation).action`").at_most(1e-2)
    expect(seen["graph"], "whether the predicted chunk has a graph").equals(False)
    loud = submission.observe("prediction", batch=rig, weights=weights, seed=given["seed"], louder=LOUDER)
    wanted = reference_chunk(rig, weights, given["seed"], LOUDER)
    error = max(relative_error(loud[name], wanted) for name in ("chunk", "called"))
    expect(error, "the relative error of the chunk with larger weights in the head").at_most(1e-2)
    other, unseen = views.clone(), views.clone()
    other[frame, 1 - camera] = rng.normal(3, 64, 64)
    unseen[frame, camera] = rng.normal(3, 64, 64, std=5.0)
    expect(
        submission.observe("action", views=other, **given)[frame], "the action under another view of a mounted camera"
    ).differs_from(chunk[frame])
    expect(
        submission.observe("action", views=unseen, **given), "the action under other pixels of a missing camera"
    ).close_to(chunk, rtol=1e-4, atol=1e-5)


@check(
    kind="invariant",
    title="Frames are independent",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    views, shows = rig_of(rng, 4, missing=2)
    expect_frames_to_be_independent(submission, rng, views=views, shows=shows, weights=random_weights(rng))


@check(
    kind="outcome",
    title="The policy learns from the recordings of all rigs",
    property=f"After {STEPS} steps on batches of 32 frames, most of which hold a frame without a camera, the loss on new frames must be below {LOSS_BAR}.",
    instrument="lab run 24",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    expect(submission.observe("training", seed=seed, steps=STEPS)["held_out"], "the loss on new frames").below(LOSS_BAR)


READER, STEP = "test_gradients_of_the_reader", "test_step_is_the_documented_one"
ATTENDED = "what is attended to ({})"
SHOWN, EVERY, LESS, OTHER = "what shows something", "every patch", "every patch, the hidden ones less", "something else"
LOST = f"{READER}/the list of what has a gradient that is not finite ({ONE_MISSING})"


@wrong_fix(
    "nan_to_num_on_the_weights",
    says="The attention's weights are finite now, and so is the gradient of the values. But the backward of the softmax uses its own output, which is still NaN, and the mask is added: the NaN reaches query, key and state.",
)
def recognise_nan_to_num_on_weights(evidence: Mapping[str, Any]) -> bool:
    lost = set(evidence[LOST])
    return {"query.weight", "key.weight", "asker"} <= lost and not {"value.weight", "out.weight"} & lost


@wrong_fix(
    "nan_to_num_on_the_gradients",
    says="Backward has already spread the NaN. Replaced by zero, it takes the gradient of all healthy frames with it: from such a batch the vision tower and the reader learn nothing.",
)
def recognise_nan_to_num_on_gradients(evidence: Mapping[str, Any]) -> bool:
    unmoved = evidence[f"{STEP}/which weight has not moved (SGD, training mode)"]
    return {"query.weight", "value.weight"} <= set(evidence[LOST]) and unmoved == NOTHING


@wrong_fix(
    "no_step_left_out",
    says="The check of the gradient's norm was the last line that kept NaN out of the weights. It hides the fault, and it is not the fault.",
)
def recognise_every_step(evidence: Mapping[str, Any]) -> bool:
    corrupted = evidence["test_corrupt_recording_is_left_out/which weight a state that is nan has changed"]
    return bool(evidence[LOST]) and corrupted != NOTHING


@wrong_fix(
    "minus_ten",
    says="No row is empty, but this number does not hide a patch: its weight is small, and where its score is high it is not even small. Use the most negative number of the dtype, or -inf where the row keeps a patch.",
)
def recognise_small_number(evidence: Mapping[str, Any]) -> bool:
    return LESS in {evidence.get(f"test_tokens_equal_the_reference/{ATTENDED.format(case)}") for case in CASES}


@wrong_fix(
    "no_mask",
    says="Without the mask no row is empty. But the bars at the sides of an image are attended to as if they were part of it.",
)
def recognise_no_mask(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[f"test_tokens_equal_the_reference/{ATTENDED.format(CASES[0])}"] == EVERY)


@wrong_fix(
    "detached",
    says="Nothing is NaN where no gradient flows. The reader, and all that the vision tower could learn from the gripper's cameras, stay as they were initialised.",
)
def recognise_detached(evidence: Mapping[str, Any]) -> bool:
    learning = evidence[f"{READER}/the list of what has a gradient ({CASES[0]})"]
    right = evidence[f"test_tokens_equal_the_reference/{ATTENDED.format(CASES[0])}"] == SHOWN
    return right and learning == []


def attended(tokens: Tensor, weights: Weights, asker: Tensor, patches: Tensor, shows: Tensor) -> str:
    """To which patches the tokens of mounted cameras attend, in words."""
    mounted = shows.any(dim=-1)
    candidates = {SHOWN: [float("-inf")], EVERY: [0.0], LESS: [-1.0, -2.0, -5.0, -10.0, -20.0, -50.0, -100.0, -1000.0]}
    for words, hidden in candidates.items():
        for number in hidden:
            wanted = reference(weights, asker, patches, shows, hidden=number)
            if mounted.any() and close(tokens[mounted], wanted[mounted]):
                return words
    return OTHER


def random_weights(
    rng: Rng, *, cameras: int = CAMERAS, vision: int = VISION_WIDTH, sharpness: float = 1.0
) -> dict[str, Tensor]:
    """A reader's weights by name, none of them close to zero; `sharpness` scales the attention's scores."""
    weights = {"camera": rng.normal(cameras, WIDTH), "absent": rng.normal(cameras, WIDTH)}
    weights |= {"norm.weight": rng.uniform(vision, low=0.5, high=1.5), "norm.bias": rng.normal(vision)}
    for name, width in (("query", WIDTH), ("key", vision), ("value", vision), ("out", WIDTH)):
        weights[f"{name}.weight"] = rng.normal(WIDTH, width, std=width**-0.5)
        if name != "key":
            weights[f"{name}.bias"] = rng.normal(WIDTH, std=0.3)
    weights["query.weight"] *= sharpness
    return weights


def inputs_of(case: Case, rng: Rng) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
    """Random weights, questions (B, D), patches (B, K, P, V), and which patches show something (B, K, P)."""
    if case.mounted == "opposed":
        return opposed_inputs(case, rng)
    weights = random_weights(rng, cameras=case.cameras, vision=OTHER_WIDTH, sharpness=case.sharpness)
    patches = rng.normal(case.frames, case.cameras, rng.integer(3, 7), OTHER_WIDTH)
    shows = bars(rng, patches.shape[:3])
    if case.mounted == "none":
        shows[:] = False
    if case.mounted == "one":
        shows[rng.integer(0, case.frames), rng.integer(0, case.cameras)] = False
    if case.mounted == "some":
        camera = torch.arange(case.cameras)
        shows[(torch.arange(case.frames)[:, None] + camera) % max(2, case.cameras) == 0] = False
    return weights, rng.normal(case.frames, WIDTH), patches, shows


def opposed_inputs(case: Case, rng: Rng) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
    """The same with two opposite patches per camera; in the head with the largest score the higher one is hidden."""
    weights = random_weights(rng, cameras=case.cameras, vision=OTHER_WIDTH)
    weights["norm.bias"].zero_()  # opposite patches have opposite keys
    asker, patch = rng.normal(case.frames, WIDTH), rng.normal(case.frames, case.cameras, OTHER_WIDTH)
    query = F.linear(asker[:, None] + weights["camera"], weights["query.weight"], weights["query.bias"])  # (B, K, D)
    key = F.linear(F.layer_norm(patch, patch.shape[-1:], weights["norm.weight"]), weights["key.weight"])
    heads = (query * key).unflatten(-1, (HEADS, -1))  # (B, K, N, E)
    scores = heads.sum(dim=-1) / heads.shape[-1] ** 0.5  # of the patch in each head; those of its opposite are -scores
    for name in ("query.weight", "query.bias"):
        weights[name] *= case.sharpness / scores.abs().max()
    largest = scores.gather(2, scores.abs().argmax(dim=2, keepdim=True))  # (B, K, 1)
    return weights, asker, torch.stack([patch, -patch], dim=2), torch.cat([largest < 0, largest >= 0], dim=2)


def bars(rng: Rng, shape: tuple[int, ...]) -> Tensor:
    """Which patches (B, K, P) show something if every camera is mounted: about two thirds, at least one, never all."""
    frames, cameras, patches = shape
    shows = rng.boolean(*shape, probability=0.67)
    where = torch.stack([rng.permutation(patches)[:2] for _ in range(frames * cameras)]).view(frames, cameras, 2)
    return shows.scatter(2, where, torch.tensor([True, False]).expand(frames, cameras, 2))


def rig_of(rng: Rng, frames: int, missing: int) -> tuple[Tensor, Tensor]:
    """Views (B, 2, 3, 64, 64) and which patches show something (B, 2, 16); `missing` frames lack one camera."""
    shows = bars(rng, (frames, CAMERAS, PATCHES))
    shows[rng.permutation(frames)[:missing], rng.integers(0, CAMERAS, missing)] = False
    return rng.normal(frames, CAMERAS, 3, 64, 64), shows


def batch_of(rng: Rng, frames: int, missing: int) -> dict[str, Tensor]:
    """A random training batch with gripper cameras; `missing` of its frames lack one of them."""
    views, shows = rig_of(rng, frames, missing)
    words = torch.arange(WORDS)[None] < rng.integers(WORDS - 3, WORDS, frames)[:, None]
    return {**padded_batch(rng, frames), "attention_mask": words.long(), "views": views, "shows": shows}


def reference(
    weights: Weights, asker: Tensor, patches: Tensor, shows: Tensor, *, hidden: float = float("-inf")
) -> Tensor:
    """The tokens (B, K, D): of each camera, attention over the patches that show something, or its learned token.

    `hidden` is added to the scores of the other patches; the default leaves them out.
    """
    dtype = asker.dtype
    own = {name: value.double() for name, value in weights.items()}
    asker, patches = asker.double(), patches.double()

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, own[f"{name}.weight"], own.get(f"{name}.bias"))

    def token(frame: int, camera: int) -> Tensor:
        shown = shows[frame, camera]
        if not shown.any():
            return own["absent"][camera]
        counted = shown | (hidden > float("-inf"))
        seen, less = patches[frame, camera][counted], torch.where(shown, 0.0, hidden)[counted]  # (S, V), (S,)
        seen = F.layer_norm(seen, seen.shape[-1:], own["norm.weight"], own["norm.bias"])
        query = linear("query", asker[frame] + own["camera"][camera]).view(HEADS, -1)  # (N, E)
        key, value = (linear(name, seen).view(len(seen), HEADS, -1).transpose(0, 1) for name in ("key", "value"))
        scores = (key @ query[..., None]).squeeze(-1) / query.shape[-1] ** 0.5 + less  # (N, S)
        return linear("out", (scores.softmax(dim=-1)[:, None] @ value).flatten())

    rows = [torch.stack([token(b, k) for k in range(shows.shape[1])]) for b in range(len(shows))]
    return torch.stack(rows).to(dtype)


def reference_gradients(
    weights: Weights, asker: Tensor, patches: Tensor, shows: Tensor, upstream: Tensor
) -> dict[str, Tensor]:
    """The reference's gradients by name; zero for what has no influence."""
    given = {**weights, "asker": asker, "patches": patches}
    given = {name: value.detach().clone().requires_grad_() for name, value in given.items()}
    reference(given, given["asker"], given["patches"], shows).backward(upstream)
    return {name: torch.zeros_like(value) if value.grad is None else value.grad for name, value in given.items()}


class Reference(Policy):
    """The base policy with the reference's tokens after the patches of the overhead camera."""

    def give_reader(self, weights: Weights) -> None:
        """Add a reader with these weights."""
        self.names = list(weights)
        self.reader = nn.ParameterList([nn.Parameter(weights[name].clone()) for name in self.names])

    def named(self) -> dict[str, Tensor]:
        """All weights by the names that the learner's policy has for them."""
        mine = dict(self.named_parameters())
        return {name: value for name, value in mine.items() if not name.startswith("reader.")} | {
            f"reader.{name}": value for name, value in zip(self.names, self.reader, strict=True)
        }

    def feature(self, batch: Mapping[str, Tensor]) -> Tensor:
        """What the head reads, (B, D)."""
        views, shows = batch["views"], batch["shows"]
        patches = self.vision(pixel_values=views.flatten(0, 1)).last_hidden_state.unflatten(0, views.shape[:2])
        weights = dict(zip(self.names, self.reader, strict=True))
        tokens = reference(weights, self.embed_state(batch["state"])[:, 0], patches, shows)
        images = torch.cat([self.embed_images(batch["pixel_values"]), tokens], dim=1)
        return self.run_language_model(
            *self.join_prefix(images, batch["input_ids"], batch["attention_mask"], batch["state"])
        )[:, -1]


def reference_policy(weights: Weights, seed: int) -> Reference:
    """The policy that `build_policy(seed)` must be, with the given reader."""
    policy = Reference.from_base(seed=seed)
    policy.give_reader(weights)
    return policy


def reference_chunk(batch: Mapping[str, Tensor], weights: Weights, seed: int, louder: float = 1.0) -> Tensor:
    """The chunk (B, H, 3) that the policy must predict, with the weights of its head's last layer times `louder`."""
    policy = with_louder_head(reference_policy(weights, seed), louder).eval()
    with torch.no_grad():
        return policy.decode(policy.feature(batch))


def reference_step(weights: Weights, batch: Mapping[str, Tensor], seed: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The batch's loss and the gradient of every weight that it depends on, by name."""
    policy = reference_policy(weights, seed)
    loss = policy.loss(policy.feature(batch), batch["action"], batch["action_is_pad"])
    loss.backward()
    return loss.detach(), {name: value.grad for name, value in policy.named().items() if value.grad is not None}


def reference_steps(
    weights: Weights, stream: list[dict[str, Tensor]], plain: bool, seed: int
) -> tuple[list[float], dict[str, Tensor], dict[str, Tensor]]:
    """The losses of the documented step on each batch, the weights after it, and the weights before it."""
    policy = reference_policy(weights, seed)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    if not plain:
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    before = {name: value.detach().clone() for name, value in policy.named().items()}
    losses = []
    for batch in stream:
        loss = policy.loss(policy.feature(batch), batch["action"], batch["action_is_pad"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: value.detach() for name, value in policy.named().items()}, before


def differing(found: Mapping[str, Any], wanted: Weights, before: Weights) -> set[str]:
    """The names of the weights that moved by something else than wanted, other than those without any influence."""
    return {
        name
        for name, value in wanted.items()
        if not name.endswith("k_proj.bias")
        and not float((found[name] - value).norm()) <= 0.1 * float((value - before[name]).norm()) + 1e-5
    }
