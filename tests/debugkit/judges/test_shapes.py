"""The judges of DK0xx as pure functions: which exception is whose, and where each threshold lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.second_device import SecondDevice, StrayTensor
from debugkit.measurements.shapes import ShapeFailure, ShapeTrace, TensorShape
from debugkit.report import Report
from debugkit.rule import Context, find_rule
from debugkit.rules.dk005_stray_tensor_attribute import StrayAttribute, StrayAttributes
from debugkit.rules.dk006_index_out_of_range import IndexRange, IndexRanges
from debugkit.rules.dk007_placeholder_count import Merge, Placeholders
from debugkit.rules.dk008_branch_without_effect import BranchEffect, BranchEffects
from debugkit.rules.dk009_unused_result import UnusedResult, UnusedResults


def judged(code: str, *seen: object) -> list[Finding]:
    rule = find_rule(code)
    return list(rule.judge(*seen, Context(rule, Declare())))


def failing(message: str, **more: object) -> ShapeTrace:
    inputs = (TensorShape((2, 4), "bfloat16", "cpu"),)
    fields = {"module": "head", "kind": "Linear", "line": None, "inputs": inputs, **more}
    return ShapeTrace((), ShapeFailure(message=message, **fields))  # type: ignore[arg-type]


MESSAGES = [
    ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x128 and 100x2)", "shape"),
    (
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        "shape",
    ),
    ("RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 5 but got size 2", "shape"),
    (
        "RuntimeError: Given groups=1, weight of size [4, 3, 2, 2], expected input[2, 8, 8, 3] to have 3 channels",
        "shape",
    ),
    ("RuntimeError: shape '[2, 3]' is invalid for input of size 8", "shape"),
    ("ValueError: Input image size (64*64) doesn't match model (32*32).", "shape"),
    ("IndexError: too many indices for tensor of dimension 2", "shape"),
    ("IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)", "shape"),
    ("RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16", "dtype"),
    ("RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16", "dtype"),
    ("RuntimeError: Input type (float) and bias type (c10::BFloat16) should be the same", "dtype"),
    ("RuntimeError: mixed dtype (CPU): expect parameter to have scalar type of Float", "dtype"),
    ("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'", "dtype"),
    ("RuntimeError: expected scalar type Long but found Int", "dtype"),
    ("RuntimeError: Expected all tensors to be on the same device, but found at least two devices", "device"),
    ("ValueError: Image features and image tokens do not match, tokens: 6, features: 8", "placeholders"),
    ("IndexError: index out of range in self", "index"),
    ("IndexError: Target 7 is out of bounds.", "index"),
    ("RuntimeError: index 9 is out of bounds for dimension 1 with size 3", "index"),
    ("KeyError: 'size'", "something else"),
    ("AttributeError: 'Policy' object has no attribute 'shape'", "something else"),
    ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn", "something else"),
]


@pytest.mark.parametrize(("message", "about"), MESSAGES)
def test_each_exception_belongs_to_one_rule(message: str, about: str) -> None:
    trace = failing(message)
    assert trace.failure is not None
    assert trace.failure.about == about
    assert bool(judged("DK001", trace)) == (about == "shape")
    assert bool(judged("DK004", trace)) == (about == "dtype")
    assert bool(judged("DK007", Placeholders(()), trace)) == (about == "placeholders")


def test_a_shape_mismatch_names_both_sizes_the_maker_and_the_config_field() -> None:
    trace = failing(
        MESSAGES[0][0], expected=8, received=4, producer="vision", fields_that_fit_received=("config.width",)
    )
    (finding,) = judged("DK001", trace)
    assert "expects size 8 but receives 4" in finding.message
    assert "made by `vision`" in finding.message
    assert "config.width" in finding.fix


def test_a_dtype_mismatch_says_which_cast_is_missing() -> None:
    (finding,) = judged("DK004", failing(MESSAGES[8][0], parameter_dtype="float32", producer="trunk"))
    assert "has float32 weights but receives bfloat16, made by `trunk`" in finding.message
    assert "float32" in finding.fix


def stray(**more: object) -> StrayTensor:
    fields: dict[str, object] = {
        "phase": "forward",
        "operation": "mul",
        "used": SourceLine("policy.py", 9),
        "module": "head",
        "created": SourceLine("policy.py", 7),
        "attribute": None,
        "variable": None,
        "shape": (4,),
        "dtype": "float32",
        "message": "Expected all tensors to be on the same device",
    }
    return StrayTensor(**{**fields, **more})  # type: ignore[arg-type]


def test_an_unexamined_second_device_is_not_a_clean_one() -> None:
    with pytest.raises(NotExamined, match="no shape rule"):
        judged("DK003", SecondDevice("pretended", (), False, False, "An operation has no shape rule."))
    assert judged("DK003", SecondDevice("pretended", (), True, True)) == []


def test_a_stray_found_before_the_run_ended_still_counts() -> None:
    (finding,) = judged("DK003", SecondDevice("pretended", (stray(),), False, False, "It ended early."))
    assert (finding.location.file, finding.location.line) == ("policy.py", 7)


@pytest.mark.parametrize(
    ("device", "of_the_step", "of_a_closure"),
    [
        ({}, Severity.INFO, Severity.INFO),
        ({"placed": SourceLine("policy.py", 3)}, Severity.WARNING, Severity.INFO),
        ({"declared": True}, Severity.ERROR, Severity.INFO),
        ({"real": True}, Severity.ERROR, Severity.INFO),
    ],
)
def test_severity_follows_the_evidence_that_the_step_is_meant_for_that_device(
    device: dict[str, Any], of_the_step: Severity, of_a_closure: Severity
) -> None:
    for tensor, expected in ((stray(), of_the_step), (stray(created=None, variable="MASK"), of_a_closure)):
        (finding,) = judged("DK003", SecondDevice("pretended", (tensor,), True, True, **device))
        assert finding.severity is expected


def test_tensors_used_in_one_line_are_one_finding_and_parameters_are_left_to_another_rule() -> None:
    strays = (stray(), stray(created=SourceLine("policy.py", 8)), stray(used=SourceLine("policy.py", 12)))
    assert len(judged("DK003", SecondDevice("pretended", strays, True, True))) == 2
    assert judged("DK003", SecondDevice("pretended", (stray(created=None, trains=True),), True, True)) == []


def test_a_report_does_not_depend_on_a_device_that_this_machine_lacks() -> None:
    seen = SecondDevice("pretended", (stray(),), True, True, placed=SourceLine("policy.py", 3))
    (finding,) = judged("DK003", seen)
    assert finding.severity is Severity.WARNING
    assert Report(findings=(finding,)).ok
    assert not Report(findings=tuple(judged("DK003", replace(seen, device="cuda:0", real=True)))).ok


def test_a_held_tensor_is_one_finding_and_its_severity_is_what_the_second_device_proves() -> None:
    held = StrayAttributes((StrayAttribute("positions", "positions.table", (16, 8), "float32"),))
    device = SecondDevice("pretended", (stray(attribute="positions.table", created=None),), False, False)
    assert judged("DK003", device) == []
    assert [f.severity for f in judged("DK005", held, device)] == [Severity.INFO]
    assert [f.severity for f in judged("DK005", held, replace(device, real=True))] == [Severity.ERROR]
    assert [f.severity for f in judged("DK005", held, SecondDevice("pretended", (), True, True))] == [Severity.INFO]
    assert [f.severity for f in judged("DK005", held, None)] == [Severity.INFO]


@given(st.integers(1, 100), st.integers(-5, 105), st.integers(-5, 105))
def test_an_index_is_wrong_exactly_if_the_table_has_no_such_row(rows: int, one: int, other: int) -> None:
    lowest, highest = sorted((one, other))
    found = judged("DK006", IndexRanges((IndexRange("embedding", rows, lowest, highest),)))
    assert bool(found) == (not (set(range(lowest, highest + 1)) <= set(range(rows))))


@given(st.integers(0, 300), st.integers(0, 300))
def test_places_and_features_must_be_as_many(places: int, features: int) -> None:
    merge = Merge("masked_scatter", places, (places,), features, "", None)
    found = judged("DK007", Placeholders((merge,)), None)
    assert bool(found) == (places != features)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1e-9, 1e-2), st.sampled_from([None, "vision"]))
def test_a_branch_that_moves_anything_beyond_the_floor_is_left_alone(
    moved: float, again: float, floor: float, holder: str | None
) -> None:
    branch = BranchEffect("skip", "Conv2d", 10, moved, again, holder)
    found = judged("DK008", BranchEffects(9, (branch,), floor))
    assert bool(found) == (moved <= floor and again <= floor)
    assert all(finding.severity is (Severity.INFO if holder else Severity.WARNING) for finding in found)


def test_parts_that_one_module_returns_unread_are_one_finding() -> None:
    parts = tuple(BranchEffect(f"vision.{name}", "Linear", 10, 0.0, 0.0, "vision") for name in ("norm", "head"))
    (finding,) = judged("DK008", BranchEffects(9, parts, 1e-5))
    assert finding.evidence["modules"] == ["vision.norm", "vision.head"]


def test_each_line_that_drops_a_result_is_a_finding_and_its_fix_names_the_variant_in_place() -> None:
    line = UnusedResult("clamp", "clamp_", SourceLine("policy.py", 12, "forward"), "head", (8, 3), 5)
    moved = replace(line, operation="to", in_place=None, at=SourceLine("train.py", 3, "train"), module=None)
    clipped, left = judged("DK009", UnusedResults((line, moved)))
    assert (clipped.location.line, clipped.location.module, clipped.evidence["calls"]) == (12, "head", 5)
    assert "`clamp_`" in clipped.fix
    assert "`to_`" not in left.fix
    assert "module" in left.fix
    assert not judged("DK009", UnusedResults(()))
