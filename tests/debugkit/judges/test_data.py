"""Judges of data and tokens, on made-up observations: where each threshold lies, and what it is compared with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.classification_losses import ClassificationLoss, ClassificationLosses, SoftTarget
from debugkit.measurements.image_inputs import ImageInput, ImageInputs
from debugkit.measurements.label_alignment import FutureTokens, LabelAlignment
from debugkit.measurements.padding import Movement, PaddingReaction
from debugkit.rule import Context, find_rule
from debugkit.rules.dk306_input_ignored import ModalityEffect, ModalityEffects
from debugkit.rules.dk307_no_targets import EqualTargets, Targets, TargetValues
from debugkit.rules.dk309_padded_targets_counted import PaddedActions, PaddedGradients
from debugkit.rules.dk310_uninformative_labels import LabelInformation
from debugkit.rules.dk311_train_validation_overlap import DataOverlap, DataOverlaps
from debugkit.rules.dk312_initial_loss import TrainingHistory
from debugkit.rules.dk313_nonfinite_input import NonfiniteInput, NonfiniteInputs
from debugkit.rules.dk315_batched_differs_from_single import CachedGeneration
from debugkit.rules.dk316_loss_input_range import ClassWeights, WeightedLoss
from debugkit.rules.dk318_sorted_training_data import LabelOrder
from debugkit.rules.dk319_input_scale import RawInput, RawInputs
from debugkit.rules.dk320_sample_scale import SampleScales, SampleSizes
from debugkit.rules.dk321_validation_on_training_batch import ValidationInputs, ValidationOnTraining
from debugkit.rules.dk322_mixed_patches import PixelsOfRows, TokenRows
from debugkit.rules.dk323_end_never_a_target import EndsOfTexts, Shown, TextEnds
from debugkit.rules.dk324_view_for_permute import CountedAxes, CountedAxis
from debugkit.rules.dk325_labels_not_shifted import TargetsAtInput, TargetsAtInputs
from debugkit.rules.dk326_mask_hides_content import AttentionMasks, InvertedMask
from debugkit.rules.dk327_softmax_over_batch import AttentionSoftmaxes, BatchSoftmax

FLOOR = 1e-5
NEVER_ENDS = TextEnds("ids", 4, 16, 2, 0, 2, 2, "mask", False, None)
COPIED = TargetsAtInput(
    None,
    "words",
    targets=20,
    changes=16,
    corrupted=False,
    own=0.3,
    before=0.0009,
    behind=0.1,
    noise=0.0,
    next_is_learnt=False,
)


def judged(code: str, *observations: object, declare: Declare | None = None) -> list[Finding]:
    rule = find_rule(code)
    return list(rule.judge(*observations, Context(rule, declare or Declare())))


# Padding


def reaction(
    content: Movement | None = None,
    longer: Movement | None = None,
    alone: Movement | None = None,
    counted_labels: int = 0,
    labels_aligned: bool = False,
) -> PaddingReaction:
    return PaddingReaction("attention_mask", 4, 20, FLOOR, content, longer, 3, alone, counted_labels, labels_aligned)


def moved(output: float = 0.0, loss: float = 0.0, path: str | None = "logits") -> Movement:
    return Movement(path, output, loss)


@given(st.floats(0, FLOOR), st.floats(0, FLOOR), st.booleans())
def test_nothing_below_the_floor_is_said_about_padding(output: float, loss: float, labels: bool) -> None:
    still = reaction(moved(output, loss), moved(output, loss), moved(output, loss), labels_aligned=labels)
    assert judged("DK303", still) == judged("DK309", still, None, None) == judged("DK315", still, None) == []


@given(st.floats(FLOOR * 1.01, 10), st.booleans(), st.booleans(), st.integers(0, 5))
def test_moving_padding_is_either_a_leak_or_a_count_and_never_both(
    size: float, output_moves: bool, by_content: bool, counted: int
) -> None:
    movement = moved(size if output_moves else 0.0, size)
    seen = reaction(
        movement if by_content else moved(), moved() if by_content else movement, None, counted, labels_aligned=True
    )
    assert len(judged("DK303", seen)) == int(output_moves)
    assert len(judged("DK309", seen, None, None)) == int(not output_moves)


def test_loss_alone_accuses_the_model_where_no_output_and_no_label_can_be_seen() -> None:
    seen = reaction(moved(0.0, 0.1, path=None), moved(0.0, 0.1, path=None))
    assert len(judged("DK303", seen)) == 1
    assert judged("DK303", replace(seen, labels_aligned=True)) == []
    assert len(judged("DK309", replace(seen, labels_aligned=True), None, None)) == 1


@pytest.mark.parametrize(
    ("target_moved", "additivity", "weighted", "line", "severity"),
    [
        (0.2, 0.9, 0.0, None, "warning"),
        (0.0, 1e-7, 0.4, True, "error"),
        (0.0, 1e-7, 0.4, None, None),  # a sum over steps, with no mean
        (0.0, 0.9, 1e-7, True, None),  # a mean over what counts
        (0.0, 1e-7, 1e-7, True, None),  # both hold for a loss of zero
        (math.nan, 1e-7, 0.4, True, "error"),  # one sample
        (0.0, math.nan, math.nan, True, None),
    ],
)
def test_padded_actions(
    target_moved: float, additivity: float, weighted: float, line: bool | None, severity: str | None
) -> None:
    from debugkit.finding import SourceLine

    at = SourceLine("policy.py", 20) if line else None
    seen = PaddedActions("action_is_pad", 6, 24, FLOOR, target_moved, additivity, weighted, at)
    assert [str(finding.severity) for finding in judged("DK309", None, seen, None)] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("reached", "content_reached", "said"),
    [(6, 20, True), (3, 2, True), (2, 20, False), (6, 1, False), (0, 20, False)],
)
def test_gradients_in_the_padding(reached: int, content_reached: int, said: bool) -> None:
    seen = PaddedGradients("lengths", "", 6, reached, 20, content_reached)
    assert [str(finding.severity) for finding in judged("DK309", None, None, seen)] == (["warning"] if said else [])


def test_padding_that_is_already_reported_is_not_reported_twice() -> None:
    gradients = PaddedGradients("action_is_pad", "", 6, 6, 20, 20)
    actions = PaddedActions("action_is_pad", 6, 24, FLOOR, 0.2, 0.9, 0.0, None)
    assert len(judged("DK309", None, actions, gradients)) == 1


def test_single_row_and_cache_are_two_findings() -> None:
    found = judged("DK315", reaction(alone=moved(0.3)), CachedGeneration("", 0.2, FLOOR, 7))
    assert [finding.evidence.get("positions_kept") for finding in found] == [None, 7]
    with pytest.raises(NotExamined):
        judged("DK315", reaction(), None)


# Labels


@pytest.mark.parametrize(
    ("are_ids", "are_next", "shifts", "fires"),
    [
        (True, False, True, False),
        (False, True, True, True),
        (False, True, False, False),
        (False, True, None, False),
    ],
)
def test_labels_are_shifted_twice_only_if_both_shift(
    are_ids: bool, are_next: bool, shifts: bool | None, fires: bool
) -> None:
    assert bool(judged("DK314", LabelAlignment(24, are_ids, are_next, shifts))) is fires


@given(st.floats(0, 1))
def test_causal_leak_is_what_exceeds_the_floor(size: float) -> None:
    assert bool(judged("DK304", FutureTokens("logits", size, FLOOR, 9, "attention"))) == (size > FLOOR)


@pytest.mark.parametrize(
    ("total", "ignored", "distinct", "per_token", "severity"),
    [
        (24, 24, 0, True, "error"),
        (2, 2, 0, False, "error"),
        (24, 8, 1, True, "warning"),
        (24, 9, 1, True, None),  # 15 counted: too few
        (16, 0, 1, False, "info"),
        (15, 0, 1, False, None),
        (24, 0, 2, True, None),
    ],
)
def test_no_targets(total: int, ignored: int, distinct: int, per_token: bool, severity: str | None) -> None:
    values = TargetValues("labels", total, ignored, distinct, 1.0, True, total, per_token)
    found = judged("DK307", Targets((values,)), None)
    assert [str(finding.severity) for finding in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("samples", "complete", "random_order", "found"),
    [
        (16, True, False, True),
        (15, True, True, False),
        (512, False, True, True),
        (512, False, False, False),  # in the order of its classes, perhaps
        (400, False, True, False),  # 1.8 % by chance
    ],
)
def test_one_target_in_the_loader(samples: int, complete: bool, random_order: bool, found: bool) -> None:
    equal = EqualTargets("labels", 3.0, samples, complete, random_order)
    said = judged("DK307", Targets((TargetValues("labels", 16, 0, 1, 3.0, True, 16, False),)), equal)
    assert [str(finding.severity) for finding in said] == ["warning" if found else "info"]
    assert all(finding.location.input == "labels" for finding in said)


# Losses


def call(**changes: object) -> ClassificationLoss:
    plain = ClassificationLoss("cross_entropy", None, 16, 10, 10, False, "", mean=2.3, weighted=False, pairs=False)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, False),
        ({"distributions": True}, True),
        ({"distributions": True, "classes": 1}, False),
        ({"made_by": "log_softmax"}, False),
        ({"operation": "nll_loss", "made_by": "log_softmax"}, False),
        ({"operation": "nll_loss", "distributions": True}, True),
        ({"operation": "binary_cross_entropy_with_logits", "made_by": "sigmoid", "classes": 1}, True),
        ({"operation": "binary_cross_entropy_with_logits", "distributions": True, "classes": 1}, False),
    ],
)
def test_double_softmax(changes: dict[str, object], fires: bool) -> None:
    assert bool(judged("DK308", ClassificationLosses((call(**changes),)))) is fires


PIXELS, SHARES, SEVERAL = (
    SoftTarget(low=0.0, high=255.0, sum_low=40.0, sum_high=255.0, fewest=1),
    SoftTarget(low=0.0, high=0.9, sum_low=0.999, sum_high=1.001, fewest=2),
    SoftTarget(low=0.0, high=1.0, sum_low=1.0, sum_high=3.0, fewest=1),
)
LOGITS = SoftTarget(low=-4.0, high=4.0, sum_low=-2.0, sum_high=3.0, fewest=10)
ADVANTAGES = SoftTarget(low=-2.0, high=2.0, sum_low=-2.0, sum_high=2.0, fewest=1)
RAW = {"logarithm": False, "highest": 3.0}
BINARY = {"operation": "binary_cross_entropy_with_logits", "classes": 1}


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, None),
        ({"made_by": "sigmoid"}, "error"),
        ({"made_by": "sigmoid", "classes": 1}, None),
        ({"operation": "nll_loss", **RAW}, "error"),
        ({"operation": "nll_loss", **RAW, "logarithm": True}, None),
        ({"operation": "nll_loss", **RAW, "highest": 1e-4}, None),
        ({"operation": "nll_loss", **RAW, "reduced": False}, None),
        ({"operation": "nll_loss", **RAW, "distributions": True}, None),
        ({"operation": "ctc_loss", **RAW}, "error"),
        ({"operation": "ctc_loss", **RAW, "reduced": False}, "error"),
        ({"operation": "ctc_loss", **RAW, "distributions": True}, "error"),
        ({"operation": "ctc_loss", **RAW, "logarithm": True}, None),
        ({"operation": "ctc_loss", **RAW, "highest": 1e-4}, None),
        ({"operation": "kl_div", **RAW, "distributions": True, "target": SHARES}, "error"),
        ({"operation": "kl_div", "target": LOGITS}, "error"),
        ({"operation": "kl_div", "target": LOGITS, "log_target": True}, None),
        ({"operation": "kl_div", "target": SHARES, "log_target": True}, "error"),
        ({"operation": "kl_div", "target": SHARES}, None),
        ({**BINARY, "target": PIXELS}, "error"),
        ({**BINARY, "target": PIXELS, "reduced": False}, None),
        ({**BINARY, "target": replace(PIXELS, high=1.2)}, None),
        ({"target": LOGITS}, "warning"),
        ({"target": ADVANTAGES}, None),
        ({"target": SHARES}, None),
        ({"target": SEVERAL}, "info"),
        ({"target": SEVERAL, "reduced": False}, None),
    ],
)
def test_range_of_a_loss(changes: dict[str, object], severity: str | None) -> None:
    found = judged("DK316", ClassificationLosses((call(**changes),)), None)
    assert [str(finding.severity) for finding in found] == ([severity] if severity else [])


@given(st.floats(-2.0, 2.0), st.lists(st.integers(100, 5000), min_size=5, max_size=12))
def test_class_weights_are_named_only_where_they_grow_with_the_counts(power: float, counts: list[int]) -> None:
    assume(max(counts) >= 3 * min(counts))
    weights = tuple(1.2345678 * (count / max(counts)) ** power for count in counts)
    loss = WeightedLoss("cross_entropy", None, weights, tuple(counts), (), 320)
    found = judged("DK316", None, ClassWeights((loss,)))
    assert not (found and abs(power - 1) > 0.2 + 1e-6)
    if abs(power - 1) < 0.01:
        assert [str(finding.severity) for finding in found] == ["warning"]


@given(st.integers(2, 100_000), st.floats(0.0, 4.0))
def test_initial_loss_is_held_against_twice_that_of_guessing(classes: int, times: float) -> None:
    mean = times * math.log(classes)
    losses = ClassificationLosses((call(classes=classes, finite_classes=classes, mean=mean),))
    assert bool(judged("DK312", losses, TrainingHistory(None))) == (mean > 2 * math.log(classes))


@pytest.mark.parametrize("changes", [{"pairs": True}, {"weighted": True}, {"rows": 7}])
def test_initial_loss_stays_silent_where_guessing_is_no_measure(changes: dict[str, object]) -> None:
    losses = ClassificationLosses((call(mean=50.0, **changes),))
    assert judged("DK312", losses, TrainingHistory(None)) == []


def test_initial_loss_of_trained_weights_is_not_judged() -> None:
    losses = ClassificationLosses((call(mean=50.0),))
    with pytest.raises(NotExamined, match="the optimizer has taken steps"):
        judged("DK312", losses, TrainingHistory("the optimizer has taken steps"))
    with pytest.raises(NotExamined, match="declared as loaded"):
        judged("DK312", losses, TrainingHistory(None), declare=Declare(pretrained=True))


# Pixels


def image(minimum: float, maximum: float, mean: float, std: float, **changes: object) -> ImageInput:
    plain = ImageInput("vision", 3, minimum, maximum, mean, std, False, 0.0, minimum)
    return replace(plain, **changes)  # type: ignore[arg-type]


@given(
    centre=st.floats(0, 1),
    spread=st.floats(0.22, 1.0),
    dark=st.floats(0, 0.3),
    bright=st.floats(0.7, 1.0),
    mean=st.floats(0.3, 0.7),
    std=st.floats(0.1, 0.35),
)
def test_no_single_normalisation_of_a_photograph_is_reported(
    centre: float, spread: float, dark: float, bright: float, mean: float, std: float
) -> None:
    # Constants in use: 0 and 1, halves, or the mean and spread of large sets of photographs (0.40 to 0.49, from 0.224).
    centre = 0.35 + 0.15 * centre if spread < 0.5 else centre * 0.5
    low, high = ((value - centre) / spread for value in (dark, bright))
    seen = image(low, high, (mean - centre) / spread, std / spread)
    assert judged("DK302", ImageInputs((seen,))) == judged("DK301", ImageInputs((seen,))) == []


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (image(-3.0, 1.0, -1.2, 1.0), "twice"),
        (image(-11.3, 7.7, -2.0, 5.0), "normalised twice"),
        (image(-3.0, 1.0, -0.6, 1.1, lowest_share=0.2, above_lowest=-1.0), "bars"),
        (image(0.0, 0.0039, 0.002, 0.001), "nearly constant"),
        (image(0.25, 255.1, 114.0, 60.0), "never normalised"),
        (image(-4.2, 4.1, 0.0, 1.0), None),  # random numbers
        (image(-4.5, 0.5, 0.1, 1.0), None),  # white pages
        (image(-1.0, -1.0, -1.0, 0.0), None),  # a blank camera
        (image(0.0, 4000.0, 2000.0, 900.0, channels=1), None),  # depth
    ],
)
def test_pixel_statistics(seen: ImageInput, words: str | None) -> None:
    found = judged("DK302", ImageInputs((seen,)))
    assert [words in finding.message for finding in found] == ([True] if words else [])


@pytest.mark.parametrize(
    ("channels", "maximum", "fires"), [(3, 255, True), (3, 2, False), (1, 127, False), (1, 255, True)]
)
def test_raw_pixels(channels: int, maximum: float, fires: bool) -> None:
    seen = image(0, maximum, maximum / 2, maximum / 4, channels=channels, whole_numbers=True)
    assert bool(judged("DK301", ImageInputs((seen,)))) is fires
    assert judged("DK301", ImageInputs((replace(seen, whole_numbers=False),))) == []


# Inputs and loaders


@pytest.mark.parametrize(
    ("size", "reopened", "declared", "severity"),
    [
        (0.0, 0.0, False, "warning"),
        (0.0, 0.0, True, "error"),
        (0.0, 0.3, True, None),
        (0.3, None, True, None),
        (FLOOR, FLOOR, False, "warning"),
    ],
)
def test_ignored_input(size: float, reopened: float | None, declared: bool, severity: str | None) -> None:
    effect = ModalityEffect("state", ("state",), size, reopened, declared)
    found = judged("DK306", ModalityEffects((effect,), (), FLOOR))
    assert [str(finding.severity) for finding in found] == ([severity] if severity else [])


@given(st.integers(1, 100), st.integers(0, 100), st.floats(0, 1))
def test_overlap_is_held_against_repetition_within_training(samples: int, shared: int, repeated: float) -> None:
    shared = min(shared, samples)
    pair = DataOverlap("train", "validation", False, 100, samples, shared, repeated, True)
    found = judged("DK311", DataOverlaps((pair,)))
    assert bool(found) == (shared > 0 and shared / samples > 2 * repeated)
    assert all(str(finding.severity) == ("error" if repeated == 0 else "warning") for finding in found)


@pytest.mark.parametrize(("finite", "severity"), [(True, "info"), (False, "error"), (None, "error")])
def test_nonfinite_input_that_changes_nothing_is_information(finite: bool | None, severity: str) -> None:
    twice = tuple(NonfiniteInput(role, 0, "state", "NaN", 1, 12, (2,)) for role in ("batch", "train"))
    found = judged("DK313", NonfiniteInputs(twice, finite, 4))
    assert [str(finding.severity) for finding in found] == [severity]


@given(st.floats(0.005, 1))
def test_labels_are_uninformative_above_the_significance_level(p_value: float) -> None:
    seen = LabelInformation("action", 200, 1.0, 1.0, p_value, 199)
    assert bool(judged("DK310", seen)) == (p_value > 0.05)


# The order and the scale of the data


SORTED = LabelOrder("labels", 400, 16, 15, 160, 20, 4, 0.75, -60.0, False, None)


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"log10_p": -8.9}, False),
        ({"overlapping": True}, False),
        ({"shuffles": True}, False),
    ],
)
def test_labels_are_sorted_if_so_few_pairs_differ(changes: dict[str, object], fires: bool) -> None:
    assert bool(judged("DK318", replace(SORTED, **changes))) is fires  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"samples": 127}, "127 samples"),
        ({"batch_size": 128}, "needs 512"),
        ({"classes": 1}, "found 1"),
        ({"classes": 1001}, "found 1,001"),
    ],
)
def test_order_of_few_samples_or_classes_is_not_examined(changes: dict[str, object], why: str) -> None:
    with pytest.raises(NotExamined, match=why):
        judged("DK318", replace(SORTED, **changes))  # type: ignore[arg-type]


TICKS = RawInput("state", "x", 16, 3, 4e4, 2, 0.5, 0, False, gradient_ratio=1e5, adaptive=False)


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, "warning"),
        ({"adaptive": True}, "info"),
        ({"gradient_ratio": 9e3}, "info"),
        ({"largest": 9e3}, None),
        ({"largest": 9e3, "smallest": 8e-3}, "warning"),
        ({"rows": 3}, None),
        ({"normalised_after": True}, None),
    ],
)
def test_scale_of_an_input(changes: dict[str, object], severity: str | None) -> None:
    found = judged("DK319", RawInputs((replace(TICKS, **changes),)))  # type: ignore[arg-type]
    assert [str(finding.severity) for finding in found] == ([severity] if severity else [])


@given(st.integers(1, 100), st.integers(0, 20), st.floats(0, 10))
def test_a_few_large_samples_are_counted_and_named(samples: int, large: int, usual: float) -> None:
    places = tuple((0, row) for row in range(min(large, samples)))
    seen = SampleScales((SampleSizes("state", samples, usual, 400 * usual, places),))
    if samples < 16 or usual == 0:
        with pytest.raises(NotExamined, match="16 samples"):
            judged("DK320", seen)
        return
    found = judged("DK320", seen)
    assert bool(found) == (0 < len(places) <= samples / 10)
    for finding in found:
        assert finding.message.count("row") == min(len(places), 4)
        assert ("more" in finding.message) == (len(places) > 4)


# Validation


@pytest.mark.parametrize(
    ("change", "is_found"),
    [({}, True), ({"turns": 1}, False), ({"others": True}, False), ({"differ": False}, False)],
)
def test_passes_over_training_inputs_are_a_finding_where_another_batch_was_read_for_each(
    change: dict[str, Any], is_found: bool
) -> None:
    passes = ValidationOnTraining(12, 4, 4, 4, "last", False, True, None)
    found = judged("DK321", ValidationInputs(2, (replace(passes, **change),)))
    assert bool(found) == is_found
    assert all("none of the 4 batches" in finding.message for finding in found)


def test_without_a_validation_that_reads_a_loader_nothing_was_examined() -> None:
    with pytest.raises(NotExamined, match="second torch DataLoader"):
        judged("DK321", ValidationInputs(0))


# Patches


@pytest.mark.parametrize(("no_patch", "is_found"), [(0, False), (3, False), (4, True), (8, True)])
def test_rows_are_a_finding_where_half_of_them_are_no_patch(no_patch: int, is_found: bool) -> None:
    rows = TokenRows("image", "encoder", 16, 768, 16, 8, no_patch, 3, 16, None)
    found = judged("DK322", PixelsOfRows((rows,)))
    assert bool(found) == is_found
    assert all("3 of the 16 squares" in finding.message for finding in found)


# Axes


def test_a_view_is_a_finding_with_the_call_to_write_instead() -> None:
    view = CountedAxis(
        "view", (4, 8, 12), (4, 12, 8), "feature", 8, (1,), (2,), "conv", "head", "head", ".transpose(1, 2)", None
    )
    (finding,) = judged("DK324", CountedAxes((view,)))
    assert "`head` reads dimension 2 of the result as the 8 features of `conv`" in finding.message
    assert finding.fix == "Write `x.transpose(1, 2)`."
    samples = replace(view, kind="batch", instead="")
    (finding,) = judged("DK324", CountedAxes((samples,)))
    assert "as the 8 samples, which" in finding.message
    assert not judged("DK324", CountedAxes(()))


# The end of a text


@pytest.mark.parametrize("shown", ["mask", "longest row"])
def test_an_end_that_no_target_asks_for_is_a_finding(shown: Shown) -> None:
    (finding,) = judged("DK323", EndsOfTexts((replace(NEVER_ENDS, shown=shown),)))
    assert "token 2" in finding.message
    assert finding.evidence["part_of_the_texts_by"] == shown


@pytest.mark.parametrize(
    "change",
    [
        {"end": None},
        {"as_target": 1},
        {"rows": 3},
        {"targets": 15},
        {"last_targets": 1},
        {"lengths": 1},
        {"shown": ""},
        {"called_padding": True},
    ],
)
def test_an_end_is_no_finding_where_it_may_be_something_else(change: dict[str, Any]) -> None:
    assert not judged("DK323", EndsOfTexts((replace(NEVER_ENDS, **change),)))


# Labels that are not shifted


@pytest.mark.parametrize(("causal", "severity"), [(None, "warning"), (True, "error")])
def test_a_causal_model_that_is_trained_on_its_input_is_a_finding(causal: bool | None, severity: str) -> None:
    (finding,) = judged("DK325", TargetsAtInputs((COPIED,)), declare=Declare(causal=causal))
    assert (finding.severity, finding.location.module) == (severity, "words")
    assert "All 20 targets" in finding.message
    assert finding.evidence["differ_from_next"] == 16


@pytest.mark.parametrize(
    "change",
    [
        {"changes": 15},
        {"corrupted": True},
        {"next_is_learnt": True},
        {"own": 0.0},
        {"own": 0.0009},  # of a model whose other outputs react a hundred times as much
        {"before": 0.002},
        {"behind": 0.0, "before": 0.0},
        {"noise": 0.02},
        {"own": 9e-7, "behind": 9e-7, "before": 0.0},
    ],
)
def test_targets_at_the_input_are_no_finding_where_the_model_may_copy(change: dict[str, Any]) -> None:
    assert not judged("DK325", TargetsAtInputs((replace(COPIED, **change),)))


def test_a_model_that_is_declared_as_not_causal_may_copy() -> None:
    with pytest.raises(NotExamined, match="not causal"):
        judged("DK325", TargetsAtInputs((COPIED,)), declare=Declare(causal=False))


def test_a_mask_that_leaves_only_the_padding_visible_is_an_error_and_its_fix_is_that_of_the_function() -> None:
    line = SourceLine("policy.py", 7, "forward")
    seen = InvertedMask("multi_head_attention_forward", "encoder.attn", line, 8, 28, 8, 2)
    (finding,) = judged("DK326", AttentionMasks(3, seen))
    assert finding.severity is Severity.ERROR
    assert (finding.location.module, finding.location.line) == ("encoder.attn", 7)
    assert "28 tokens" in finding.message
    assert "ignored" in finding.fix
    (other,) = judged("DK326", AttentionMasks(3, replace(seen, operation="scaled_dot_product_attention", module=None)))
    assert "take part" in other.fix
    assert "`scaled_dot_product_attention`" in other.message
    assert not judged("DK326", AttentionMasks(3, None))
    with pytest.raises(NotExamined):
        judged("DK326", AttentionMasks(0, None))


def test_a_softmax_over_a_batch_dimension_is_a_warning_that_tells_its_size_and_the_number_of_keys() -> None:
    wrong = BatchSoftmax(1, (3, 4, 5, 6), "encoder.attn", SourceLine("policy.py", 9, "forward"))
    (finding,) = judged("DK327", AttentionSoftmaxes(2, (wrong,)))
    assert finding.severity is Severity.WARNING
    assert (finding.location.module, finding.location.line) == ("encoder.attn", 9)
    assert "its 4 entries compete, and the weights of the 6 keys do not sum to 1" in finding.message
    (in_the_loop,) = judged("DK327", AttentionSoftmaxes(1, (replace(wrong, module=None),)))
    assert "in the loop" in in_the_loop.message
    assert not judged("DK327", AttentionSoftmaxes(2, ()))
    with pytest.raises(NotExamined):
        judged("DK327", AttentionSoftmaxes(0, ()))
