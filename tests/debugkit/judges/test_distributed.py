"""The judges of the distributed rules as pure functions of what ranks have written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.wrapper_use import Bypass, WrapperUse, WrapperUses
from debugkit.rule import Context, Mode, find_rule
from debugkit.rules.dk802_ranks_diverge import Divergence, RankDigests
from debugkit.rules.dk802_ranks_diverge.measure import first_divergence
from debugkit.rules.dk804_collective_mismatch import Collective, CollectiveRecord, RankRecord
from debugkit.rules.dk805_sampler_partition import Coverage, SamplerPartition, SamplerPartitions

RULES = {code: find_rule(code) for code in ("DK801", "DK802", "DK803", "DK804", "DK805")}


def judged(code: str, seen: object, mode: Mode = "watch") -> list[Finding]:
    return list(RULES[code].judge(seen, Context(RULES[code], Declare(), mode)))


def use(**changed: Any) -> WrapperUses:
    healthy = WrapperUse("DistributedDataParallel", "module", 1, 2, 9, False, False, True, 1, (), None)
    return WrapperUses((replace(healthy, **changed),))


# DK801


@given(st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_unused_parameters_matter_where_ddp_waits_for_them(
    unused: bool, finds: bool, static: bool, synchronises: bool
) -> None:
    names = ("module.vision.weight",) if unused else ()
    seen = use(unused=names, finds_unused=finds, static_graph=static, synchronises=synchronises)
    assert bool(judged("DK801", seen)) == (unused and synchronises and not finds and not static)
    assert bool(judged("DK801", seen, mode="check")) == (unused and not finds and not static)


def test_many_unused_parameters_are_counted_by_module() -> None:
    names = tuple(f"module.{part}.{n}.weight" for part in ("vision", "projector") for n in range(3))
    (finding,) = judged("DK801", use(unused=names))
    assert "on rank 1: 3 in `module.vision` and 3 in `module.projector`." in finding.message
    assert finding.location.module == "module"
    assert finding.affects == names


# DK803


@given(st.integers(0, 100))
def test_gradients_averaged_by_hand_are_no_bypass(reduced: int) -> None:
    found = judged("DK803", use(bypass=Bypass("module", None, 4, 100, reduced)))
    assert bool(found) == (reduced < 50)


# DK802


@given(st.lists(st.integers(0, 1), min_size=3, max_size=3), st.integers(0, 3))
def test_the_first_tensor_that_differs_is_named_with_the_ranks_that_agree(bits: list[int], place: int) -> None:
    held = {rank: [7] * place + [bit] + [7] for rank, bit in enumerate(bits)}
    found = first_divergence(5, [f"p{n}" for n in range(place + 2)], held)
    if len(set(bits)) == 1:
        assert found is None
    else:
        assert found is not None
        assert (found.parameter, found.different, found.compared) == (f"p{place}", 1, place + 2)
        assert sorted(rank for group in found.groups for rank in group) == [0, 1, 2]


@pytest.mark.parametrize(("wrapped", "severity"), [(True, Severity.ERROR), (False, Severity.WARNING)])
def test_ranks_that_nothing_wraps_may_train_models_of_their_own(wrapped: bool, severity: Severity) -> None:
    first = Divergence(2, "head.weight", 1, 9, ((0, 2), (1,)))
    (finding,) = judged("DK802", RankDigests(0, 3, wrapped, 3, first))
    assert finding.severity is severity
    assert "with one value on ranks 0 and 2 and another on rank 1" in finding.message
    assert finding.location.step == 2


def test_without_another_rank_nothing_is_said() -> None:
    assert judged("DK802", RankDigests(0, 2, True, 4, None)) == []
    with pytest.raises(NotExamined, match="every rank"):
        judged("DK802", RankDigests(0, 2, True, 0, None))


# DK804


def call(number: int, operation: str = "all_reduce", *, done: bool = True, **more: Any) -> Collective:
    asked = {"group": (0, 1), "shape": (3,), "dtype": "float32", "at": SourceLine("/a/train.py", 10 + number)} | more
    return Collective(operation, number=number, done=done, **asked)


def record(*ranks: RankRecord, compared: bool = True) -> CollectiveRecord:
    return CollectiveRecord(0, len(ranks), compared, 5.0, ranks)


WAITS = RankRecord(0, "running", (call(0), call(1, done=False)), SourceLine("/a/train.py", 11))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (RankRecord(1, "silent"), "rank 1 has published no record"),
        (
            RankRecord(1, "running", (call(0),), SourceLine("/a/save.py", 3)),
            "rank 1 never made this call and is at `save.py:3`",
        ),
        (RankRecord(1, "ended", (call(0),)), "rank 1 never made this call and has left the loop"),
        (RankRecord(1, "raised", (call(0),), None, "ValueError: x"), "never made this call and raised ValueError: x"),
        (
            RankRecord(1, "raised", (call(0), call(1)), None, "ValueError: x"),
            "has finished this call and raised ValueError: x",
        ),
    ],
)
def test_the_missing_rank_is_named_with_its_line(other: RankRecord, expected: str) -> None:
    (finding,) = judged("DK804", record(WAITS, other))
    assert "Rank 0 waits in collective 1, `all_reduce` of float32 [3] at `train.py:11`" in finding.message
    assert expected in finding.message
    assert finding.evidence["missing"] == [1]


@pytest.mark.parametrize("changed", [{"shape": (2,)}, {"dtype": "float16"}, {"operation": "broadcast"}])
def test_the_first_call_that_differs_comes_before_who_is_missing(changed: dict[str, Any]) -> None:
    different = replace(call(0, at=SourceLine("/a/other.py", 7)), **changed)
    (finding,) = judged("DK804", record(WAITS, RankRecord(1, "running", (different,))))
    assert "Collective 0 of this group is not the same on all ranks" in finding.message
    assert (finding.location.file, finding.location.line) == ("/a/other.py", 7)


def test_ranks_that_wait_in_the_same_call_are_no_mismatch() -> None:
    assert judged("DK804", record(WAITS, replace(WAITS, rank=1))) == []
    assert judged("DK804", record(WAITS, RankRecord(1, "silent"), compared=False)) == []


def test_a_rank_outside_the_group_is_not_missed() -> None:
    alone = RankRecord(0, "running", (call(0, group=(0, 1), done=False),))
    third = RankRecord(2, "silent")
    assert judged("DK804", record(alone, replace(alone, rank=1), third)) == []


# DK805


def partition(together: tuple[int, int], drifted: tuple[int, int], knows: bool = True) -> SamplerPartitions:
    parts = [Coverage(overlapping, missed, (13, 13)) for overlapping, missed in (together, drifted)]
    return SamplerPartitions((SamplerPartition("train", "Sampler", 2, 25, 1, 1, knows, parts[0], parts[1]),))


@pytest.mark.parametrize(
    ("together", "drifted", "knows", "severity"),
    [
        ((1, 0), (1, 0), True, None),  # padded
        ((0, 1), (0, 1), True, None),  # the tail is dropped
        ((2, 0), (2, 0), True, Severity.ERROR),
        ((0, 2), (0, 2), True, Severity.ERROR),
        ((25, 0), (25, 0), False, Severity.WARNING),
        ((1, 0), (9, 8), True, Severity.WARNING),
    ],
)
def test_padding_and_tail_are_no_fault(
    together: tuple[int, int], drifted: tuple[int, int], knows: bool, severity: Severity | None
) -> None:
    found = judged("DK805", partition(together, drifted, knows))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
