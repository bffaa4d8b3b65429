"""Requirements for loading a checkpoint. Runs in the grader's process; judges data, and never sees the code.

Checkpoints are made here: the base, the base with other numbers, and bases that do not fit. The reference is the stock
policy, which loads strictly. A policy's own names do not matter: its tensors are found by the ends of their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from labs.checkpoints import (
    EMBEDDINGS,
    WORD_HEAD,
    another_checkpoint,
    base,
    held_by,
    other_shapes,
    tail,
    too_few,
    too_many,
)
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.instructed_policy import Reference, padded_instructions, random_film, shortest_instructions
from labs.invariants import (
    TOLERANCE,
    expect_equal,
    expect_image_and_instruction_to_matter,
    expect_success_rate,
    listed,
)
from labs.policy_comparison import expect_gradients_of
from labs.vla.policy import Policy

EPISODES = 50
SUCCESS_BAR = 0.9
ACCEPTED, REFUSED = "no error", "an error that names the tensor"
UNNAMED = "an error that does not name the tensor"
NARROW = 32
"""Another width of the vision tower than the language model's."""


@check(
    kind="behaviour",
    title="The policy holds every tensor of the checkpoint",
    property="After loading, each tensor of the file must be in the policy, bit for bit; also when another file is loaded later. If the file has a trained head and its statistics, the policy must hold these too, or an error must name one of them.",
    instrument="debugkit.check(policy, batch, declare=debugkit.Declare(checkpoint=BASE_CHECKPOINT), select=['DK114'])",
)
def test_policy_holds_the_file(submission: Submission, rng: Rng) -> None:
    other, seed = another_checkpoint(rng), rng.seed()
    files = {"the base": base(), "a checkpoint with other numbers": other}
    seen = {said: submission.observe("loaded", saved=saved, seed=seed) for said, saved in files.items()}
    lacking = {said: listed(saved.keys() - held_by(saved, seen[said]["holds"])) for said, saved in files.items()}
    for said, names in lacking.items():
        expect(names, f"what is in {said} but not in the policy")
    for said, names in lacking.items():
        expect(brief(seen[said]["error"]), f"the error from loading {said}, which fits,").equals("none")
        expect(names, f"what is in {said} but not in the policy").equals("nothing")
    again = submission.observe("loaded_again", saved=other, seed=seed)
    expect(listed(other.keys() - held_by(other, again)), "what is not in the policy after a second load").equals(
        "nothing"
    )
    tuned = {**other, **trained_head(rng)}
    seen_tuned = submission.observe("loaded_with_head", saved=tuned, seed=seed)
    error = seen_tuned["error"]
    if error is None or all(refusal(error, name) != REFUSED for name in tuned if name.startswith(NEW_IN_BASE)):
        said = "a checkpoint with a trained head"
        expect(brief(error), f"the error from loading {said}").equals("none")
        lacking_of_it = listed(tuned.keys() - held_by(tuned, seen_tuned["holds"]))
        expect(lacking_of_it, f"what is in {said} but not in the policy").equals("nothing")


@check(
    kind="behaviour",
    title="Before training, FiLM changes nothing",
    property="Loaded from the same file, an untrained policy must predict the chunk of the policy without FiLM.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import batches, demonstrations as d; b = next(batches(d(8, 0), 8, 1, 0)); print((build_policy(0).eval().predict(b) - Policy.from_base(seed=0).eval().predict(b)).abs().max())'",
)
def test_starts_as_the_base(submission: Submission, rng: Rng) -> None:
    for size, said in ((3, "the base"), (1, "a checkpoint with other numbers"), (rng.integer(4, 7), "the base")):
        saved = base() if said == "the base" else another_checkpoint(rng)
        batch, seed = padded_instructions(rng, size), rng.seed()
        stock = Reference.holding(saved, seed).eval().predict(batch)
        found = submission.observe("action", batch=batch, seed=seed, saved=saved)
        expect_equal(found, stock, f"the chunk of a policy from {said}, compared with one without FiLM,")


@check(
    kind="behaviour",
    title="A checkpoint that does not fit raises",
    property="A tensor that is missing, one without a place, and one of another shape must each raise an error that names it.",
    instrument='python -c \'from policy import *; from safetensors.torch import save_file; f = load_file(BASE_CHECKPOINT); del f["projector.0.bias"]; save_file(f, "less.safetensors"); build_policy(0, Path("less.safetensors"))\'',
)
def test_other_checkpoints_raise(submission: Submission, rng: Rng) -> None:
    results = []
    for kind, files in DOES_NOT_FIT.items():
        for name, saved in files(rng):
            seen = submission.observe("loaded", saved=saved, seed=rng.seed())
            results.append((result_of(kind, name), refusal(seen["error"], name)))
            expect(results[-1][1], results[-1][0])
    base_seen = submission.observe("loaded", saved=base(), seed=rng.seed())
    expect(brief(base_seen["error"]), "the error from loading the base, which fits,").equals("none")
    for said, outcome in results:
        expect(outcome, said).equals(REFUSED)


@check(
    kind="behaviour",
    title="A shared tensor is in the file once",
    property="Word embeddings and word head are one tensor. The file may have it under either name, or under both, and it must still be one after loading.",
    instrument="python -c 'from policy import *; p = build_policy(0); print(p.word_head.weight is p.language_model.embed_tokens.weight)'",
)
def test_shared_tensor_is_saved_once(submission: Submission, rng: Rng) -> None:
    saved = another_checkpoint(rng)
    value = saved[EMBEDDINGS]
    added = rng.normal(*value.shape)
    rest = {name: tensor for name, tensor in saved.items() if name != EMBEDDINGS}
    files = {
        "`embed_tokens.weight`": saved,
        "`word_head.weight`": {**rest, WORD_HEAD: value},
        "`embed_tokens.weight`, `word_head.weight`": {**saved, WORD_HEAD: value.clone()},
    }
    for said, file in files.items():
        error = submission.observe("loaded", saved=file, seed=0)["error"]
        expect(brief(error), f"the error from loading a file that has the shared tensor as {said}").equals("none")
        seen = submission.observe("shared", saved=file, added=added, seed=0)
        expect(seen["embeddings"], f"the word embeddings, saved as {said} and then changed,").close_to(value + added)
        expect(seen["word_head"], f"the word head, saved as {said}, after the embeddings have changed,").close_to(
            value + added
        )


@check(
    kind="invariant",
    title="The instruction scales and shifts the features",
    property="With any weights of FiLM, the loss, all gradients, the chunk and the scores of the words must be those of the formula in the docstring.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_film_is_the_formula(submission: Submission, rng: Rng) -> None:
    for batch in (padded_instructions(rng, rng.integer(4, 7)), padded_instructions(rng, 1), shortest_instructions(rng)):
        size, film, seed = len(batch["state"]), random_film(rng), rng.seed()
        saved = another_checkpoint(rng)
        saved[EMBEDDINGS] *= 4  # so that some means are larger than one
        seen = submission.observe("one_pass", batch=batch, film=film, seed=seed, saved=saved)
        reference = Reference.holding(saved, seed, film)
        loss = reference.train()(**batch).loss
        assert loss is not None
        loss.backward()
        expect(seen["loss"], f"the loss of a batch of {size}").close_to(loss.detach(), rtol=TOLERANCE)
        expect_gradients(reference, seen["gradients"], f"of {size}")
        with torch.no_grad():
            expect_equal(seen["action"], reference.eval().predict(batch), f"the chunk of a batch of {size}")
            expect_equal(seen["answer"], reference.answer(batch), f"the scores of the words for a batch of {size}")
        words = reference.language_model.embed_tokens.weight
        (wanted,) = torch.autograd.grad(reference.answer(batch).square().mean(), words)
        expect_equal(seen["answer_gradient"], wanted, f"the gradient of the scores of the words for a batch of {size}")
    chunk = submission.observe("of_another_width", batch=batch, vision_width=NARROW)
    expect(chunk, f"the chunk of a policy with a vision tower of width {NARROW}").has_shape(*batch["action"].shape)


@check(
    kind="invariant",
    title="What is new comes from the seed",
    property="The action head must be drawn from the seed, FiLM must begin at zero, and the caller's random state must not change.",
    instrument="python -c 'from policy import *; print(build_policy(0).head.mlp[0].weight[0, :3], build_policy(1).head.mlp[0].weight[0, :3])'",
)
def test_new_parts_come_from_the_seed(submission: Submission, rng: Rng) -> None:
    seed = rng.integer(0, 1000)
    seen = submission.observe("built", seed=seed)
    stock = {
        name: value for name, value in Policy.from_base(seed=seed).state_dict().items() if name.startswith(NEW_IN_BASE)
    }
    lacking = stock.keys() - held_by(stock, seen["first"])
    expect(listed(lacking), "what of a new head and its statistics differs from the seed's").equals("nothing")
    film = {name: value for name, value in seen["first"].items() if re.match(r"vision\.(scale|shift)\.", name)}
    expect(sorted(film), "FiLM's tensors").equals(sorted(f"vision.{name}" for name in random_film(rng)))
    expect(listed(name for name, value in film.items() if value.any()), "what of FiLM is not zero").equals("nothing")
    differs = {name for name, value in seen["first"].items() if not torch.equal(value, seen["second"][name])}
    expect(listed(differs), "what differs between two policies of one seed").equals("nothing")
    expect(seen["kept_random_state"], "whether the caller's random state is the same as before").is_true()


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted chunk.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng, batch=padded_instructions(rng, 4))


@check(
    kind="outcome",
    title="With FiLM the robot reaches the block",
    property=f"After a short fine-tuning, at least {SUCCESS_BAR:.0%} of {EPISODES} episodes on new tables must end with a grasp of the named block.",
    instrument="lab run 49",
)
def test_robot_grasps(submission: Submission, seed: int) -> None:
    result = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(result["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


Files = Callable[[Rng], Iterator[tuple[str, dict[str, Tensor]]]]
DOES_NOT_FIT: dict[str, Files] = {"missing": too_few, "without a place": too_many, "shape": other_shapes}
NEW_IN_BASE = ("head.", "action_statistics.")


def trained_head(rng: Rng) -> dict[str, Tensor]:
    """Another head and other statistics, by the names in the checkpoint of a fine-tuned policy without FiLM."""
    own = Policy.from_base(seed=0).state_dict()
    return {name: rng.uniform(*own[name].shape, low=0.5) for name in own if name.startswith(NEW_IN_BASE)}


def result_of(kind: str, name: str) -> str:
    """What is measured by loading a file of one kind that does not fit."""
    if kind == "missing":
        return f"the result of loading a file without `{name}`"
    if kind == "without a place":
        return f"the result of loading a file with `{name}`, which has no place in the policy,"
    return f"the result of loading a file in which `{name}` has another shape"


def refusal(error: str | None, name: str) -> str:
    """What became of a file with a wrong tensor of this name."""
    if error is None:
        return ACCEPTED
    names = (EMBEDDINGS, WORD_HEAD) if name == EMBEDDINGS else (name,)
    return REFUSED if any(tail(one) in error for one in names) else UNNAMED


def brief(error: str | None) -> str:
    """The beginning of an error, in one line."""
    line = " ".join((error or "none").split())
    return line if len(line) < 120 else f"{line[:120]}…"


def expect_gradients(reference: Reference, found: Mapping[str, Tensor], of: str) -> None:
    """The gradients of a submission by the reference's names must be the reference's."""
    wanted = reference.gradients()
    ends = {name: f".{name.partition('.')[2]}" for name in wanted}
    own = {
        name: value
        for name, end in ends.items()
        for place, value in found.items()
        if place.startswith(name.partition(".")[0]) and place.endswith(end)
    }
    expect_gradients_of(reference, own, of)
    for name in wanted.keys() - dict(reference.named_parameters()).keys():
        expect(name in own, f"whether {name} has a gradient").is_true()
        expect_equal(own[name], wanted[name], f"the gradient of {name} in a batch {of}")


@wrong_fix(
    "strict_false",
    says="`strict=False` compares shapes alone. A tensor without a place, and a place without a tensor, are accepted in silence; what was not loaded is in the two lists that it returns, which nothing reads.",
)
def recognise_not_strict(evidence: Mapping[str, Any]) -> bool:
    seen = outcomes(evidence)
    return seen["missing"] == seen["without a place"] == {ACCEPTED} and REFUSED in seen["shape"]


@wrong_fix(
    "unexpected_only",
    says="What the file has too much is refused now. What it lacks is not: that tensor of the policy keeps its random numbers, as the tower did.",
)
def recognise_unexpected_only(evidence: Mapping[str, Any]) -> bool:
    seen = {"missing": {ACCEPTED}, "without a place": {REFUSED}, "shape": {REFUSED}}
    return outcomes(evidence) == seen and lacks_of_the_base(evidence) == "nothing"


@wrong_fix(
    "renamed_and_caught",
    says="The names match, so this file is loaded. The error is still caught: the next file that does not fit is accepted in silence, as this one was.",
)
def recognise_caught(evidence: Mapping[str, Any]) -> bool:
    accepts_all = all(found == {ACCEPTED} for found in outcomes(evidence).values())
    return accepts_all and lacks_of_the_base(evidence) == "nothing"


@wrong_fix(
    "strict_alone",
    says="Now every file is refused, the correct one too: the action head and FiLM are new, and no file has them. Say which tensors may be missing, and raise for the others.",
)
def recognise_strict(evidence: Mapping[str, Any]) -> bool:
    error = evidence[f"{HOLDS}/loaded"]["error"]
    return error is not None and re.search(r"\bhead\.mlp", error) is not None


HOLDS, RAISES = "test_policy_holds_the_file", "test_other_checkpoints_raise"


def outcomes(evidence: Mapping[str, Any]) -> dict[str, set[str]]:
    """What became of the files of each kind that do not fit."""
    begins = {kind: f"{RAISES}/{result_of(kind, '').partition('`')[0]}`" for kind in DOES_NOT_FIT}
    return {
        kind: {str(value) for name, value in evidence.items() if name.startswith(begin)}
        for kind, begin in begins.items()
    }


def lacks_of_the_base(evidence: Mapping[str, Any]) -> str:
    """Which tensors of the base the policy does not hold, or `nothing`."""
    return str(evidence[f"{HOLDS}/what is in the base but not in the policy"])
