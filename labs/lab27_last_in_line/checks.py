"""Requirements for a policy that packs a fleet into one row. Runs in the grader's process; judges data, never code.

Cosines and sines are compared with float64; features, chunks, loss and gradients with the healthy policy in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    WORDS,
    expect_image_and_instruction_to_matter,
    expect_step_on_a_second_device,
    expect_success_rate,
    listed,
    relative_error,
)
from labs.packed_observations import PER_OBSERVATION, counted, fleet, observations, tokens_of
from labs.policy_comparison import expect_gradients_of
from labs.rotary_phases import (
    EXACT,
    FREQUENCIES_ROUNDED,
    HEAD,
    POSITIONS_ROUNDED,
    ROUNDING,
    base_of,
    explain,
    largest_error,
    of_phases,
    score_error,
)
from labs.vla.policy import OBSERVATION_KEYS, Policy

PHASE_TOLERANCE = 1e-3
SCORE_TOLERANCE = 0.02
"""Relative to the size of a score. Cosines and sines that are rounded to bfloat16 give 0.003."""
FEATURE_TOLERANCE = {"bfloat16": 0.05, "float32": 1e-3}
"""Relative to the feature's length, for the worst place in a row. bfloat16 gives 0.015 without the phases."""
SITUATION = {
    (): "in float32",
    ("bfloat16",): "after `.bfloat16()`",
    ("to",): "after `.to(torch.bfloat16)`",
    ("bfloat16", "float"): "after `.bfloat16()` and `.float()`",
    ("to", "float"): "after `.to(torch.bfloat16)` and `.float()`",
}
CALL = {"bfloat16": ".bfloat16()", "to": ".to(torch.bfloat16)", "float": ".float()"}
FARTHEST = 4096
OTHER_BASE = 500_000
"""Llama 3's base of the rotary frequencies, which the language model's config may have instead of 10,000."""
OTHER_HEAD = 24
"""A width of a head that is not the width divided by the number of heads: `head_dim`, which many configs have."""
ROBOTS, LAST, BAR = 96, 32, 0.9


@check(
    kind="behaviour",
    title="The phases of far positions are exact",
    property="After `.bfloat16()`, after `.to(torch.bfloat16)`, in float32, and cast back to float32, a cosine or sine at any position, up to 4,096 and in a longer row, must be off by at most 1e-3, beyond the rounding of the result, whatever the table was asked before, in either dtype, and with the base of the frequencies and the width of a head that the language model's config has.",
    instrument="python -c 'from policy import *; p = build_policy(0).bfloat16(); x = torch.zeros(1).bfloat16(); print(p.language_model.rotary_emb(x, torch.tensor([[2000]]))[0], (2000 * 10_000 ** (-torch.arange(8) / 8)).cos())'",
)
def test_phases_are_exact(submission: Submission, rng: Rng) -> None:
    near, far = torch.arange(rng.integer(20, 60))[None], rng.integers(257, FARTHEST, 2, 200)
    far[0, :4] = torch.tensor([2000, FARTHEST, 300, FARTHEST + 404])
    last = torch.tensor([[2000]])
    growing = [torch.tensor([[place]]) for place in (0, 1, 2, rng.integer(4, 9), rng.integer(12, 16), 40)]
    alone = submission.observe("phases", casts=[], dtype="float32", asked=growing, asked_before=[], seed=rng.seed())
    measured = []
    for casts, before in (
        (["bfloat16"], []),
        (["to"], ["to"]),
        ([], []),
        (["bfloat16", "float"], []),
        (["to", "float"], ["to", "float"]),
        (["bfloat16", "float"], ["float"]),
    ):
        dtype = "bfloat16" if casts in (["bfloat16"], ["to"]) else "float32"
        asked = {"asked": [last, far, near, far], "asked_before": before}
        answers = submission.observe("phases", casts=casts, dtype=dtype, **asked, seed=rng.seed())
        where = situation(casts)
        if before:
            where += f", asked before {' and '.join(f'`{CALL[cast]}`' for cast in before)} as well"
        measured.append((where, dtype, answers))
        if casts == ["bfloat16"]:
            expect(explain(far, answers[1]), "how the phases are computed in bfloat16")
        if not casts:
            expect(base_of(answers[2]), "the base of the frequencies in float32")
    for where, dtype, answers in measured:
        for asked, found in zip((last, far, near, far), answers, strict=True):
            for name in ("cos", "sin"):
                function = {"cos": "cosines", "sin": "sines"}[name]
                which = "position 2,000" if asked is last else f"{asked.numel()} positions up to {int(asked.max()):,}"
                said = f"the {function} of {which} {where}"
                expect(found[name], said).has_shape(*asked.shape, 16)
                expect(str(found[name].dtype), f"the dtype of {said}").equals(f"torch.{dtype}")
                error = largest_error(found[name], asked, name)
                expect(error, f"how far {said} are off, beyond rounding,").at_most(PHASE_TOLERANCE)
    for asked, found in zip(growing, alone, strict=True):
        for name in ("cos", "sin"):
            said = f"the {name} of position {int(asked)}, asked alone,"
            expect(found[name], said).has_shape(1, 1, 16)
            expect(largest_error(found[name], asked, name), f"how far {said} is off").at_most(PHASE_TOLERANCE)
    for casts, dtype, base, head in (
        ([], "float32", OTHER_BASE, HEAD),
        (["bfloat16"], "bfloat16", OTHER_BASE, HEAD),
        ([], "float32", LLAMAS_BASE, OTHER_HEAD),
        (["bfloat16"], "bfloat16", OTHER_BASE, OTHER_HEAD),
    ):
        config = {"base": base, "head": None if head == HEAD else head}
        found = submission.observe(
            "phases", casts=casts, dtype=dtype, asked=[far], asked_before=[], seed=rng.seed(), **config
        )[0]
        for name, function in (("cos", "cosines"), ("sin", "sines")):
            said = f"the {function} of {far.numel()} positions with the base {base:,} and heads of width {head} in the config {situation(casts)}"
            expect(found[name], said).has_shape(*far.shape, head)
            error = (found[name].double() - configured(far, name, base, head)).abs().max()
            tolerance = PHASE_TOLERANCE + ROUNDING[getattr(torch, dtype)]
            expect(error, f"how far {said} are off").at_most(tolerance)


@check(
    kind="behaviour",
    title="Attention tells neighbours apart, in every place of the row",
    property="Between any two tokens of an observation, attention must turn queries and keys by the phases of their distance: in the first observation of a row and in the last one, and over 2,000 tokens of one observation, in bfloat16 and in float32.",
    instrument="python -c 'from policy import *; r = build_policy(0).bfloat16().language_model.rotary_emb; x = torch.zeros(1).bfloat16(); a, b = r(x, torch.tensor([[2000, 2001]]))[0][0]; print(a - b)'",
)
def test_attention_tells_neighbours_apart(submission: Submission, rng: Rng) -> None:
    robots = fleet(rng, rng.integer(80, 95))
    long = observations(rng, [rng.integer(1900, 2000), 5, rng.integer(1900, 2000)], 2000, "right")
    for batch, name in ((robots, f"{len(robots['state'])} robots"), (long, "two long instructions and a short one")):
        lengths = tokens_of(batch)
        for casts in (["bfloat16"], []):
            seen = submission.observe("row", batch=batch, casts=casts, seed=rng.seed())
            expect(counted(seen["positions"], lengths), f"how positions are counted {situation(casts)}, {name}")
            said = f"in a row of {name} {situation(casts)}"
            for function in ("cos", "sin"):
                expect(seen[function], f"what attention gets as {function} {said}").has_shape(1, sum(lengths), 16)
            start = 0
            for place, length in enumerate(lengths, start=1):
                cos, sin = (seen[function][0, start : start + length] for function in ("cos", "sin"))
                error = score_error(rng, cos, sin)
                which = f"observation {place} of {len(lengths)}, tokens {start:,} to {start + length - 1:,},"
                expect(error, f"the error of the attention scores of {which} {said}").at_most(SCORE_TOLERANCE)
                start += length


@check(
    kind="behaviour",
    title="An observation gets the same action in every place of the row",
    property="The feature and the action of each observation must be those that the healthy policy gives in float32: within 5 % in bfloat16, and within 0.1 % in float32, whatever the number of robots, and with padding on either side.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_place_does_not_matter(submission: Submission, rng: Rng) -> None:
    for batch, casts in (
        (fleet(rng, rng.integer(80, 95)), ["to"]),
        (fleet(rng, rng.integer(40, 60), "left"), []),
        (fleet(rng, 1), ["bfloat16"]),
        (fleet(rng, 30), ["bfloat16", "float"]),
    ):
        dtype = "bfloat16" if casts in (["to"], ["bfloat16"]) else "float32"
        size, seed = len(batch["state"]), rng.seed()
        seen = submission.observe("row", batch=batch, casts=casts, seed=seed)
        healthy = Policy.from_base(seed=seed).eval()
        if casts == ["bfloat16", "float"]:
            healthy = healthy.bfloat16().float()  # rounds its weights; its phases stay exact
        with torch.no_grad():
            feature = healthy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        chunk = healthy.predict(batch)
        expect(seen["chunk_dtype"], f"the dtype of the actions {situation(casts)}").equals("float32")
        for name, wanted in (("feature", feature), ("chunk", chunk)):
            found = seen[name]
            expect(found, f"the {name} of {size} robot{'s' * (size > 1)}").has_shape(*wanted.shape)
            for place in range(size):
                said = f"the relative error of robot {place + 1}'s {name}, of {size}, {situation(casts)}"
                expect(relative_error(found[place], wanted[place]), said).at_most(FEATURE_TOLERANCE[dtype])


@check(
    kind="invariant",
    title="All observations are in one row without padding",
    property="The language model must read the tokens of all observations in one pass and one row, and no padding; `run_language_model` must return 0 at padding.",
    instrument="debugkit.trace_shapes(policy, batch)",
)
def test_one_row_without_padding(submission: Submission, rng: Rng) -> None:
    some = rng.integer(5, 20)
    for size, side, casts in ((some, "right", ["bfloat16"]), (some, "left", []), (1, "right", [])):
        batch = fleet(rng, size, side)
        seen = submission.observe("row", batch=batch, casts=casts, seed=rng.seed())
        said = f"of {size} robot{'s' * (size > 1)}, as rows and columns,"
        wanted = [[1, sum(tokens_of(batch))]]
        expect(seen["one_encode"], f"the passes for the features {said}").equals(wanted)
        expect(seen["passes"][1:], f"the passes for the actions {said}").equals(wanted)
    batch = observations(rng, [2, 5, 3], WORDS, "left")
    rest = submission.observe("padding", batch=batch, seed=rng.seed())
    expect(rest, "what `run_language_model` returns at padding").equals(torch.zeros(3 * WORDS - 10, 64))


@check(
    kind="invariant",
    title="The whole policy is in bfloat16 after the cast",
    property="After `.bfloat16()` or `.to(torch.bfloat16)`, all weights must be in bfloat16 and every layer must return bfloat16. After `.float()`, or without a cast, everything must be float32.",
    instrument="python -c 'from policy import *; print({v.dtype for v in build_policy(0).bfloat16().state_dict().values()})'",
)
def test_policy_is_in_bfloat16(submission: Submission, rng: Rng) -> None:
    measured = []
    for casts in (["bfloat16"], ["to"], [], ["to", "float"]):
        dtype, seed = "bfloat16" if casts in (["bfloat16"], ["to"]) else "float32", rng.seed()
        ran = submission.observe("row", batch=fleet(rng, 3), casts=casts, seed=seed)["dtypes"]
        kept = submission.observe("stored", casts=casts, seed=seed)
        weights = {name: str(value.dtype).removeprefix("torch.") for name, value in kept.items()}
        measured.append((casts, dtype, ran, weights))
        if casts == ["bfloat16"]:
            expect(sorted(set(ran.values())), "the dtypes of layers after `.bfloat16()`")
    layers = {name for name, layer in Policy().named_modules() if list(layer.parameters(recurse=False))}
    for casts, dtype, ran, weights in measured:
        healthy = Policy() if dtype == "float32" else Policy().bfloat16()
        cast = healthy.proprioception.weight.dtype
        parameters = {name for name, value in healthy.state_dict().items() if value.dtype == cast}
        others = {name for name in parameters & weights.keys() if weights[name] != dtype}
        expect(listed(others), f"the weights that are not in {dtype} {situation(casts)}").equals("nothing")
        others = {name for name, found in ran.items() if found != dtype}
        expect(listed(others), f"the layers that do not return {dtype} {situation(casts)}").equals("nothing")
        missing = {name for name in layers - ran.keys() if not name.endswith(NOT_CALLED)}
        expect(listed(missing), f"the layers that do not run {situation(casts)}").equals("nothing")


@check(
    kind="invariant",
    title="The checkpoint is the base's",
    property="A checkpoint must have the names and weights of the healthy policy, and no table, before a cast and after it.",
    instrument="python -c 'from policy import *; print(list(build_policy(0).state_dict()))'",
)
def test_checkpoint_is_the_bases(submission: Submission, rng: Rng) -> None:
    for casts, seed in (([], rng.seed()), (["bfloat16"], rng.seed())):
        found, healthy = submission.observe("stored", casts=casts, seed=seed), Policy.from_base(seed=seed)
        wanted = (healthy.bfloat16() if casts else healthy).state_dict()
        missing = listed(wanted.keys() ^ found.keys())
        expect(missing, f"what the checkpoint lacks or has too many {situation(casts)}").equals("nothing")
        other = {name for name, value in wanted.items() if not torch.equal(found[name].to(value), value)}
        expect(listed(other), f"what in the checkpoint differs from the base {situation(casts)}").equals("nothing")


@check(
    kind="invariant",
    title="Training in float32 is that of the healthy policy",
    property="In float32, the loss and the gradients of a packed row must be those of the padded batch.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_training_is_unchanged(submission: Submission, rng: Rng) -> None:
    batch, seed = fleet(rng, rng.integer(6, 12)), rng.seed()
    seen = submission.observe("trained_on", batch=batch, seed=seed)
    healthy = Policy.from_base(seed=seed).train()
    loss = healthy(**batch).loss
    loss.backward()
    expect(seen["loss"], "the loss in float32").close_to(loss.detach(), rtol=1e-4)
    expect_gradients_of(healthy, seen["gradients"], "in float32")


@check(
    kind="invariant",
    title="The step runs on a second device, forward and backward",
    property="With the policy and the batch on another device, no tensor may be left on the CPU, and forward and backward must both complete.",
    instrument="debugkit.simulate_device(policy, batch)",
)
def test_runs_on_a_second_device(submission: Submission, rng: Rng) -> None:
    expect_step_on_a_second_device(submission, fleet(rng, rng.integer(2, 5)), rng.seed())


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="In bfloat16, another image and another instruction must each change the action.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=fleet(rng, 3))


@check(
    kind="outcome",
    title="The last robots of the row succeed",
    property=f"Fine-tuned in float32 and cast to bfloat16, the policy must drive {ROBOTS} robots so that at least {BAR:.0%} of the last {LAST} in the row succeed.",
    instrument="lab run 27",
)
def test_last_robots_succeed(submission: Submission, seed: int) -> None:
    success = submission.observe("fleet", seed=seed, robots=ROBOTS)["success"]
    expect(success, "the list of successes").has_shape(ROBOTS)
    expect_success_rate(success[-LAST:], episodes=LAST, at_least=BAR)


PHASES = "test_phases_are_exact/how the phases are computed in bfloat16"
BASE = "test_phases_are_exact/the base of the frequencies in float32"
COUNTED = "test_attention_tells_neighbours_apart/how positions are counted after `.bfloat16()`, two long instructions and a short one"
DTYPES = "test_policy_is_in_bfloat16/the dtypes of layers after `.bfloat16()`"
LLAMAS_BASE = 10_000
NOT_CALLED = ("position_embedding", "embeddings")


@wrong_fix(
    "float_in_forward",
    says="The product is in float32 now, so neighbours differ. But the frequencies were rounded when the policy was cast, and `.float()` does not bring the lost digits back: at position 2,000 a phase is off by a third of a radian.",
)
def recognise_rounded_frequencies(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(PHASES) == FREQUENCIES_ROUNDED


@wrong_fix(
    "positions_in_bfloat16",
    says="The frequencies are exact now, and the positions are not: bfloat16 holds every integer up to 256. From there on neighbours have the same position.",
)
def recognise_rounded_positions(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(PHASES) == POSITIONS_ROUNDED


@wrong_fix(
    "bigger_base",
    says="A larger base makes the phases smaller, so they are rounded less. They are also other phases than those with which the base was trained, in float32 as well.",
)
def recognise_base(evidence: Mapping[str, Any]) -> bool:
    base = evidence.get(BASE)
    return isinstance(base, float) and base > 1.1 * LLAMAS_BASE


@wrong_fix(
    "whole_model_in_float32",
    says="The cast no longer does anything: the phases are exact because the whole policy is still in float32, with twice the memory.",
)
def recognise_float32(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(DTYPES) == ["float32"]


@wrong_fix(
    "positions_from_zero",
    says="Each observation begins at position 0 now, so no short one gets far. The phases are still computed in bfloat16, and an observation of 2,000 tokens has the same fault within itself.",
)
def recognise_restart(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(COUNTED) == PER_OBSERVATION and evidence.get(PHASES) != EXACT


def configured(positions: Tensor, function: str, base: int, head: int) -> Tensor:
    """The cosines or sines (..., head) at `positions` (...) with this base of the frequencies, in float64."""
    frequencies = base ** (-torch.arange(0, head, 2).double() / head)
    return of_phases(positions.double()[..., None] * frequencies, function)


def situation(casts: list[str]) -> str:
    """Which casts the policy had, in words."""
    return SITUATION[tuple(casts)]
