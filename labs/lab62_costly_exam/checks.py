"""What must hold for a validation. Runs in the grader's process, without the learner's code.

The reference is computed from the batch and from the policy's prediction, which is observed separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, padded_batch
from labs.vla.normalization import TABLETOP_STD

VALIDATIONS = 4
HELD_OUT = 64
LEARNT = 0.9
"""The last validation's loss must be below this fraction of the first one's."""


@check(
    kind="behaviour",
    title="Validation records nothing for a backward pass",
    property="During validation nothing must be kept for a backward pass, and the result must not require a gradient.",
    instrument="debugkit.watch(policy, optimizer, select=['DK603'])",
)
def test_validation_records_no_graph(submission: Submission, rng: Rng) -> None:
    sizes = [rng.integer(3, 7), rng.integer(2, 5), 1]
    batch, seed = padded_batch(rng, sum(sizes)), rng.seed()
    training = submission.observe("training_bytes", batch=batch, seed=seed)
    seen = submission.observe("validation", batch=batch, sizes=sizes, seed=seed)
    expect(training, "the bytes that a training step on the same frames keeps").above(1e6)
    expect(seen["requires_grad"], "what still requires a gradient")
    expect(seen["left_bytes"], "the bytes left behind")
    expect(seen["most_bytes"], "the number of bytes kept for a backward pass").equals(0)
    expect(seen["left_bytes"], "the number of bytes left behind").equals(0)
    expect(seen["requires_grad"], "the list of what still requires a gradient").equals([])


@check(
    kind="behaviour",
    title="Loss and error cover all held-out frames",
    property="Loss and error must be computed over every held-out frame, in evaluation mode, without padded steps.",
    instrument="lab run 62",
)
def test_numbers_equal_the_reference(submission: Submission, rng: Rng) -> None:
    for sizes in ([rng.integer(2, 6), rng.integer(2, 6), 1], [rng.integer(5, 9)]):
        batch, seed = padded_batch(rng, sum(sizes)), rng.seed()
        predicted = submission.observe("action", batch=batch, seed=seed)
        seen = submission.observe("validation", batch=batch, sizes=sizes, seed=seed)
        loss, error = reference(predicted, batch)
        valid = ~batch["action_is_pad"]
        expect(seen["error"], "the error of each frame and step").close_to(error, rtol=1e-3, atol=1e-5)
        expect(seen["loss"], "the validation loss").close_to(loss, rtol=1e-3, atol=1e-5)
        along = (error * valid).sum(dim=0) / valid.sum(dim=0)
        expect(seen["along_the_chunk"], "the error along the chunk").close_to(along, rtol=1e-3, atol=1e-5)


@check(
    kind="invariant",
    title="The policy's state is restored",
    property="After validation every module's mode, every parameter and its requires_grad, and torch's global gradient setting must be unchanged.",
    instrument="debugkit.check(policy, batch, select=['DK505', 'DK113'])",
)
def test_policy_is_handed_back(submission: Submission, rng: Rng) -> None:
    sizes = [rng.integer(2, 5), rng.integer(2, 5)]
    seen = submission.observe("validation", batch=padded_batch(rng, sum(sizes)), sizes=sizes, seed=rng.seed())
    facts = {name: seen[name] for name in ("gradients_enabled", "frozen", "modes_changed")}
    expect(facts, "state after validating")
    expect(seen["gradients_enabled"], "gradients are enabled after validation,").is_true()
    expect(seen["frozen"], "the list of parameters that no longer train").equals([])
    expect(seen["modes_changed"], "the number of modules whose mode changed").equals(0)
    expect(seen["changed"], "the list of tensors that validation changed").equals([])


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
    title="Training with validations learns, and its memory use does not grow",
    property=f"Over 40 steps there must be {VALIDATIONS} validations of {HELD_OUT} frames. None may leave anything behind in memory, and the validation loss must fall.",
    instrument="lab run 62",
)
def test_training_learns_and_stays_light(submission: Submission, seed: int) -> None:
    run = submission.observe("trained_run", seed=seed)
    expect(run["left_bytes"], "the bytes left behind by each validation").equals([0] * VALIDATIONS)
    expect(run["frames"], "the frames of each validation").equals([HELD_OUT] * VALIDATIONS)
    expect(run["training"], "the policy is in training mode afterwards,").is_true()
    first, *_, last = run["validation_losses"]
    expect(last / first, "the last validation loss as a fraction of the first").below(LEARNT)


GRAPH = "test_validation_records_no_graph/"
STATE = "test_policy_is_handed_back/state after validating"


@wrong_fix(
    "detached_outputs",
    says="Nothing is left behind any more. But each batch still records its whole graph before it is discarded: a validation still needs as much memory as a training step.",
)
def recognise_detached(evidence: Mapping[str, Any]) -> bool:
    return (
        evidence[GRAPH + "the bytes left behind"] == 0
        and evidence[GRAPH + "the number of bytes kept for a backward pass"] > 0
    )


@wrong_fix(
    "loss_as_a_number",
    says="The loss no longer refers to its graph. The errors refer to the same graph, so none of it is freed.",
)
def recognise_half(evidence: Mapping[str, Any]) -> bool:
    return evidence[GRAPH + "the bytes left behind"] > 0 and evidence[GRAPH + "what still requires a gradient"] == [
        "error"
    ]


@wrong_fix(
    "frozen_for_good",
    says="No graph is recorded, because no parameter requires a gradient, and none will in the next training step either. Switch off the recording, not the parameters.",
)
def recognise_frozen(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence[STATE]["frozen"])


@wrong_fix(
    "gradients_off_for_good",
    says="This switches gradients off and never on again: the next training loss has no graph, and its backward pass fails.",
)
def recognise_off(evidence: Mapping[str, Any]) -> bool:
    return evidence[STATE]["gradients_enabled"] is False


@wrong_fix(
    "everything_trains_after",
    says="No graph is recorded, but the policy is changed: every module is put into training mode, including those that were in evaluation mode on purpose.",
)
def recognise_modes(evidence: Mapping[str, Any]) -> bool:
    return evidence[STATE]["modes_changed"] > 0 and not evidence[STATE]["frozen"]


def reference(predicted: Tensor, batch: Mapping[str, Tensor]) -> tuple[float, Tensor]:
    """The loss over all steps that are not padding, and the error of every step in metres, (N, H)."""
    off = predicted.double() - batch["action"]  # (N, H, 3), environment units
    scaled = off / torch.tensor(TABLETOP_STD, dtype=torch.float64)
    loss = F.smooth_l1_loss(scaled, torch.zeros_like(scaled), beta=0.1, reduction="none").mean(dim=-1)
    return float(loss[~batch["action_is_pad"]].mean()), off[..., :2].norm(dim=-1).float()
