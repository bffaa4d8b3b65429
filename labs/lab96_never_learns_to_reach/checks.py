"""What must hold for a policy that a Trainer co-trains. Runs in the grader's process, without the learner's code.

The reference is in `labs.co_training`: the documented batch and loss, and a plain training loop, on the stock policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labs.co_training import (
    BETAS,
    LEARNING_RATE,
    OBSERVATION,
    WEIGHT_DECAY,
    WORDS,
    Sample,
    batch_of,
    loss_of,
    losses_of,
    mixture_of,
    random_samples,
    rate_at,
    train,
)
from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_success_rate
from labs.stock_policy import expect_stock_parameters, expect_stock_prediction
from labs.vla.policy import Policy

EPISODES, SUCCESS_BAR = 50, 0.6
MIXTURES = {
    "one demonstration": (1, 0),
    "one caption": (0, 1),
    "demonstrations alone": (5, 0),
    "captions alone": (0, 4),
    "demonstrations and captions": (4, 3),
}
"""Numbers of demonstrations and of captions."""
ENDS = "captions at both ends and demonstrations between them"


@check(
    kind="behaviour",
    title="Training minimises the documented loss",
    property="In `train()`, each step's loss must be that of the chunks plus a tenth of that of the words, whatever the share of demonstrations, and the weights must follow.",
    instrument="python -c 'from policy import *; m = build_model(0); t = build_trainer(m, mixture(12, 0), mixture(6, 1), steps=1, folder=Path(\"run\"), seed=0, batch_size=12); print(m(**next(iter(t.get_train_dataloader()))).loss, m(**collate(list(t.train_dataset))).loss)'",
)
def test_training_minimises_the_loss(submission: Submission, rng: Rng) -> None:
    for mixture, (demonstrations, captions) in (MIXTURES | {ENDS: (3, 2)}).items():
        seed, steps = rng.seed(), rng.integer(3, 5)
        samples = random_samples(rng, demonstrations, captions)
        if mixture == ENDS:
            samples = [samples[-1], *samples[:-1]]
        held_out = random_samples(rng, rng.integer(1, 4), rng.integer(1, 4))
        seen = submission.observe("trained_on", samples=samples, held_out=held_out, seed=seed, steps=steps)
        policy = Policy.from_base(seed=seed)
        start = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
        wanted = train(policy, batch_of(samples), steps)
        expect(terms(seed, samples), f"the terms of the loss of {mixture}")
        expect(len(seen["losses"]), f"the number of steps of the training on {mixture}").equals(steps)
        for step, (loss, reference) in enumerate(zip(seen["losses"], wanted, strict=True), start=1):
            expect(loss, f"the loss of {mixture} in step {step} of {steps}").close_to(reference, rtol=2e-4)
        expect(
            share_apart(seen["weights"], dict(policy.named_parameters()), start),
            f"the weights' distance from the reference after {steps} steps on {mixture}, as a share of their movement,",
        ).at_most(0.05)


@check(
    kind="behaviour",
    title="Held-out samples have the same loss",
    property="`evaluate()` must return the documented loss as `eval_loss`, for demonstrations and captions.",
    instrument='python -c \'from policy import *; m = build_model(0); t = build_trainer(m, mixture(12, 0), mixture(6, 1), steps=1, folder=Path("run"), seed=0, batch_size=6); print(t.evaluate()["eval_loss"], m(**collate(list(t.eval_dataset))).loss)\'',
)
def test_held_out_loss_is_the_same(submission: Submission, rng: Rng) -> None:
    for mixture, trained in (
        ("demonstrations and captions", (2, 1)),
        ("one caption", (2, 1)),
        ("demonstrations alone", (0, 2)),
    ):
        seed, samples, held_out = rng.seed(), random_samples(rng, *trained), random_samples(rng, *MIXTURES[mixture])
        held_out.reverse()  # captions first
        # The first step of the warm-up has a rate of 0, so the policy is still the untrained one.
        seen = submission.observe("trained_on", samples=samples, held_out=held_out, seed=seed, steps=1)
        wanted = terms(seed, held_out)
        expect(wanted, f"the terms of the `eval_loss` of {mixture}")
        expect(seen["eval_loss"], f"the `eval_loss` of {mixture}").close_to(sum(wanted.values()), rtol=2e-4)
    seed, held_out, given = rng.seed(), random_samples(rng, 1, 2), random_samples(rng, 3, 1)
    given.reverse()  # a caption first
    found = submission.observe("evaluated_on", samples=held_out, held_out=held_out, given=given, seed=seed)
    passed_to, built_with = "passed to `evaluate`", "passed to `build_trainer`, beside others"
    for loss, samples, where in zip(
        found, (given, held_out, given), (passed_to, built_with, f"{passed_to} again"), strict=True
    ):
        expect(loss, f"the `eval_loss` of held-out samples that are {where},").close_to(
            sum(terms(seed, samples).values()), rtol=2e-4
        )


@check(
    kind="behaviour",
    title="Every sample is in an epoch once, whole and in another order",
    property="Each batch of the Trainer's loader must have the documented loss of its samples, and an epoch must contain each sample once, in batches of the given size and an order that depends on the seed.",
    instrument='python -c \'from policy import *; m = build_model(0); t = build_trainer(m, mixture(12, 0), mixture(6, 1), steps=1, folder=Path("run"), seed=0, batch_size=4); print([(len(b["state"]), b["is_step"].any(dim=1).sum()) for b in t.get_train_dataloader()])\'',
)
def test_epoch_is_complete(submission: Submission, rng: Rng) -> None:
    size, samples = rng.integer(2, 5), random_samples(rng, rng.integer(8, 12), rng.integer(4, 7))
    first, second, orders = rng.seed() % 1000, 1000 + rng.seed() % 1000, []
    for seed in (first, second, first):
        seen = submission.observe("first_epoch", samples=samples, seed=seed, batch_size=size)
        expect(seen["is_trainer"], "whether `build_trainer` returns a transformers.Trainer").is_true()
        policy, order = Policy.from_base(seed=seed), []
        for number, (states, loss) in enumerate(zip(seen["states"], seen["losses"], strict=True)):
            rows = rows_of(states, samples)
            expect(loss, f"the loss of batch {number} of the loader").close_to(
                loss_of(policy, batch_of([samples[row] for row in rows])), rtol=2e-4
            )
            order += rows
        whole, rest = divmod(len(samples), size)
        wanted = [size] * whole + [rest] * (rest > 0)
        expect([len(states) for states in seen["states"]], f"the sizes of training batches of {size}").equals(wanted)
        expect(seen["evaluated"], f"the sizes of evaluated batches of {size}").equals(wanted)
        expect(sorted(order), "the samples of an epoch").equals(list(range(len(samples))))
        orders.append(order)
    for order in orders:
        expect(order != sorted(order), "whether the samples of an epoch are shuffled").is_true()
    expect(orders[0] != orders[1], "whether another seed gives another order").is_true()
    expect(orders[2], "the order of an epoch with the first seed again").equals(orders[0])


@check(
    kind="behaviour",
    title="A batch is what the policy takes",
    property="`collate` must pad the actions with zeros, mark the expert's steps, give a caption none, and leave out every other column.",
    instrument="python -c 'from policy import *; print({name: value.shape for name, value in collate([mixture(9, 0)[i] for i in (0, 8)]).items()})'",
)
def test_batch_is_documented(submission: Submission, rng: Rng) -> None:
    for mixture, (demonstrations, captions) in MIXTURES.items():
        samples = random_samples(rng, demonstrations, captions)
        samples = [samples[row] for row in rng.permutation(len(samples)).tolist()]
        batch, wanted = submission.observe("collated", samples=samples), batch_of(samples)
        expect(sorted(batch), f"the names in a batch of {mixture}").equals(sorted(wanted))
        for name, value in wanted.items():
            expect(batch[name], f"`{name}` of {mixture}").equals(value)


@check(
    kind="invariant",
    title="The samples are the recorded ones",
    property="`mixture` must give two thirds demonstrations with the column `action`, then captions without it, and a Trainer must leave the samples as they are.",
    instrument="python -c 'from policy import *; print(mixture(9, 0)[0].keys(), mixture(9, 0)[8].keys())'",
)
def test_samples_are_the_recorded_ones(submission: Submission, rng: Rng) -> None:
    count, seed = rng.integer(7, 13), rng.seed() % 100_000
    found, wanted = submission.observe("mixed", count=count, seed=seed), mixture_of(count, seed)
    expect(len(found), f"the number of samples of a mixture of {count}").equals(count)
    for number, (sample, reference) in enumerate(zip(found, wanted, strict=True)):
        kind = "a demonstration" if "action" in reference else "a caption"
        where = f"of sample {number} of {count}, {kind}"
        missing = sorted(set(reference) - set(sample)) or ["nothing"]
        expect(missing[0], f"the column that is missing {where}").equals("nothing")
        expect("action" in sample, f"whether there are actions {where}").equals("action" in reference)
        for name, value in reference.items():
            expect(sample[name], f"`{name}` {where}").equals(value)
    samples = random_samples(rng, 2, 1)
    seen = submission.observe("trained_on", samples=samples, held_out=samples, seed=seed, steps=1)
    columns = sorted({name for sample in samples for name in sample})
    expect(seen["columns"], "the columns of the samples after a training").equals(columns)


@check(
    kind="invariant",
    title="Optimizer, schedule and log are those of earlier runs",
    property="The Trainer must use AdamW with weight decay 0.01, warm up for 20 steps and follow a cosine, log both losses when documented, and write only what it is asked to, into its folder.",
    instrument="python -c 'from policy import *; m = build_model(0); t = build_trainer(m, mixture(12, 0), mixture(6, 1), steps=51, folder=Path(\"run\"), seed=0, batch_size=2); t.train(); print(t.optimizer, t.state.log_history)'",
)
def test_settings_are_kept(submission: Submission, rng: Rng) -> None:
    steps = rng.integer(51, 56)
    seen = submission.observe("logged_training", samples=random_samples(rng, 1, 1), seed=rng.seed(), steps=steps)
    expect(seen["optimizer"], "the type of the optimizer").equals("AdamW")
    for betas in seen["betas"]:
        expect(betas, "the optimizer's betas").close_to(list(BETAS))
    expect(max(seen["decays"]), "the optimizer's weight decay").close_to(WEIGHT_DECAY)
    wanted = [LEARNING_RATE * rate_at(step, steps) for step in range(steps)]
    expect(seen["rates"], f"the learning rates of {steps} steps").close_to(wanted, rtol=1e-4, atol=1e-9)
    expect(seen["logged"]["loss"], f"the steps of {steps} after which the training loss is logged").equals([1, 50])
    expect(seen["logged"]["eval_loss"][:1], "the first step after which `eval_loss` is logged").equals([50])
    expect(len(seen["files"]), "the number of files that a training writes").equals(0)
    expect(len(seen["saved"]), "the number of files in the folder after `save_model`").above(0)


@check(
    kind="invariant",
    title="The policy is the base policy",
    property="The model must have the base policy's parameters alone, and its `policy` must predict as the base policy does, from image and instruction.",
    instrument="debugkit.check(model.policy, batch, select=['DK306'])",
)
def test_policy_is_the_base_policy(submission: Submission, rng: Rng) -> None:
    expect_stock_parameters(submission)
    expect_stock_prediction(submission, rng, rtol=1e-4, atol=1e-5)


@check(
    kind="outcome",
    title="The trained policy reaches the named block",
    property=f"After 150 steps on 4,800 samples, the policy must reach the named block in {SUCCESS_BAR:.0%} of {EPISODES} episodes.",
    instrument="lab run 96",
)
def test_trained_policy_reaches_the_block(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained_rollout", seed=seed, episodes=EPISODES)
    expect_success_rate(seen["success"], episodes=EPISODES, at_least=SUCCESS_BAR)


def terms(seed: int, samples: Sequence[Sample]) -> dict[str, float]:
    """What chunks and words each contribute to the loss of an untrained policy."""
    losses = losses_of(Policy.from_base(seed=seed), batch_of(samples))
    return {"chunks": float(losses["chunks"]), "words": WORDS * float(losses["words"])}


def rows_of(states: Tensor, samples: Sequence[Sample]) -> list[int]:
    """Which samples have these states (B, 3)."""
    every = torch.stack([sample["state"] for sample in samples])
    return [int((every - state).abs().sum(dim=-1).argmin()) for state in states]


def share_apart(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """The distance of weights from the wanted ones, as a share of how far those moved from the start.

    In one norm: AdamW steps by the gradient's sign, and rounding alone decides it for an entry that is nearly zero.
    """
    moved = sum(float((wanted[name].detach() - weight).square().sum()) for name, weight in start.items())
    apart = sum(float((found[name] - wanted[name].detach()).square().sum()) for name in start)
    return (apart / moved) ** 0.5


BOTH = "demonstrations and captions"
TRAINING, HELD_OUT = "test_training_minimises_the_loss", "test_held_out_loss_is_the_same"


@wrong_fix(
    "another_column_name",
    says="The actions are in a column that the Trainer keeps, under a name that means something else. Samples of any other data set still have `action`, and still lose it.",
)
def recognise_another_name(evidence: Mapping[str, Any]) -> bool:
    first = evidence["mixed"][0]
    moved = [value for name, value in first.items() if name not in (*OBSERVATION, "action") and is_actions(value)]
    return "action" not in first and bool(moved)


@wrong_fix(
    "action_as_a_label",
    says="The training has its actions now. But the Trainer evaluates only batches that have all labels, and no batch has `action`: `eval_loss` is gone.",
)
def recognise_label(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["trained_on"]
    return "action" in seen["labels"] and seen["eval_loss"] is None and passed(evidence, TRAINING)


@wrong_fix(
    "training_loader_only",
    says="The training has its actions now. The loader of the held-out samples still has none, so `eval_loss` is that of the words alone.",
)
def recognise_training_only(evidence: Mapping[str, Any]) -> bool:
    found = evidence[f"{HELD_OUT}/the `eval_loss` of {BOTH}"]
    wanted = evidence[f"{HELD_OUT}/the terms of the `eval_loss` of {BOTH}"]
    return passed(evidence, TRAINING) and found is not None and near(found, wanted["words"])


@wrong_fix(
    "any_keyword",
    says="`forward` accepts any keyword now, and the Trainer does not ask what it accepts: it keeps the columns that have a parameter of their own.",
)
def recognise_any_keyword(evidence: Mapping[str, Any]) -> bool:
    seen, wanted = (
        evidence[f"{TRAINING}/trained_on"],
        evidence[f"{TRAINING}/the terms of the loss of one demonstration"],
    )
    return seen["any_keyword"] and near(float(seen["losses"][0]), wanted["words"])


@wrong_fix(
    "zeros_as_actions",
    says="A sample without actions now counts as a demonstration of standing still. The Trainer still removes the actions, and captions never had any.",
)
def recognise_zeros(evidence: Mapping[str, Any]) -> bool:
    batch = evidence["test_batch_is_documented/collated"]
    captions = ~batch["chunk"].flatten(1).any(dim=1)
    return bool(captions.any()) and bool(batch["is_step"][captions].all())


def is_actions(value: Any) -> bool:
    """Whether a column can hold actions (n, A)."""
    return isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] == 3


def near(found: float, wanted: float) -> bool:
    """Whether two losses are the same up to rounding."""
    return abs(found - wanted) <= 1e-3 * abs(wanted)


def passed(evidence: Mapping[str, Any], name: str) -> bool:
    """Whether a check passed."""
    return bool(evidence[name]["outcome"] == "passed")
