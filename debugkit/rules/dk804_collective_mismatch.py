"""Ranks call different collectives, or one is missing from a collective in which the others wait.

## What it finds
Every watched rank keeps its last 32 collectives: operation, shape, dtype, group, number, line. When one of them fails
or runs into its time-out, the ranks' records are laid side by side. The rank that is missing is named with the line at
which it stands; or the first call that is not the same on all ranks.

## Why it hurts
A hang has no traceback. Every rank that is right waits; the one that is wrong is elsewhere, in a file, at a breakpoint,
behind an exception that it has caught. After the time-out (ten minutes on NCCL) it is the waiting rank that raises.
Shapes that differ need not even raise: gloo lets one of two ranks go on with what it got.

## Evidence
The call and its number, what each rank called there, each rank's state and line, how long this rank has waited.

## Fix
Collectives are for everybody: take them out of `if rank == 0`, out of a branch that depends on the data, out of a loop
whose length differs. Where DDP's backward is the call that some ranks are past, look at DK801: they used fewer
parameters. Silent ranks were never started, or do not run under `watch()`.

## When it stays silent
While everything comes back. Sub-groups are compared among their own ranks; calls whose shapes may differ (gather,
scatter, all_to_all) by operation alone; point-to-point messages are not recorded.

## Cost
A few microseconds a collective, and a thread that leaves a letter in the process group's store every half second. NCCL
ends the process on a time-out, before Python can say anything; so after 30 s of waiting the thread writes what it knows
to the log. A rank that is merely slow is in that log and not in the report.

## Lesson
[Lab 81](../../lessons/distributed/81_missing_image_hang.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observations.collectives import Collective, CollectiveRecord, RankRecord
from debugkit.registry import Context, rule


@rule(
    "DK804",
    name="collective-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="2P",
    modes=("watch",),
    needs=(CollectiveRecord,),
)
def judge(seen: CollectiveRecord, context: Context) -> Iterator[Finding]:
    if not seen.compared:
        return
    mine = next(record for record in seen.ranks if record.rank == seen.rank)
    for group in dict.fromkeys(call.group for call in mine.calls):
        records = [record for record in seen.ranks if record.rank in group]
        if (place := _first_different(records, group)) is not None:
            yield _mismatch(seen, place, context)
            return
    if mine.calls:
        waiting = mine.calls[-1]
        elsewhere = [record for record in seen.ranks if record.rank in waiting.group and not _is_in(record, waiting)]
        if elsewhere and not waiting.done:
            yield _missing(seen, waiting, elsewhere, context)


def _first_different(records: Sequence[RankRecord], group: tuple[int, ...]) -> dict[int, Collective] | None:
    """Rank → call, at the first number at which two ranks called something else; None where all agree."""
    by_number: dict[int, dict[int, Collective]] = {}
    for record in records:
        for call in record.calls:
            if call.group == group:
                by_number.setdefault(call.number, {})[record.rank] = call
    for number in sorted(by_number):
        if len({(call.operation, call.shape, call.dtype) for call in by_number[number].values()}) > 1:
            return by_number[number]
    return None


def _is_in(record: RankRecord, call: Collective) -> bool:
    """Whether a rank waits in this very call."""
    return record.state != "silent" and any(
        (own.group, own.number, own.done) == (call.group, call.number, False) for own in record.calls
    )


def _mismatch(seen: CollectiveRecord, calls: dict[int, Collective], context: Context) -> Finding:
    number = next(iter(calls.values())).number
    said = "; ".join(f"rank {rank} called {_name(call)} at {_place(call.at)}" for rank, call in sorted(calls.items()))
    other = next(call for rank, call in sorted(calls.items()) if _name(call) != _name(calls[min(calls)]))
    return context.finding(
        f"Collective {number} of this group is not the same on all ranks: {said}.",
        at=other.at,
        evidence=_evidence(seen) | {"number": number},
        fix="Let every rank make the same calls in the same order, with tensors of one shape and dtype.",
    )


def _missing(seen: CollectiveRecord, waiting: Collective, elsewhere: Sequence[RankRecord], context: Context) -> Finding:
    who = " and ".join(_whereabouts(record, waiting) for record in elsewhere)
    return context.finding(
        f"Rank {seen.rank} waits in collective {waiting.number}, {_name(waiting)} at {_place(waiting.at)}; {who}.",
        at=next((record.stands_at for record in elsewhere if record.stands_at), waiting.at),
        evidence=_evidence(seen) | {"number": waiting.number, "missing": [record.rank for record in elsewhere]},
        fix="Find out why that rank did not come: a branch on its rank or its data, an exception, a shorter loader.",
    )


def _whereabouts(record: RankRecord, waiting: Collective) -> str:
    if record.state == "silent":
        return f"rank {record.rank} has left no word: it was never started, or does not run under watch()"
    past = any((own.group, own.number) == (waiting.group, waiting.number) for own in record.calls)
    where = "is past it" if past else "never came"
    if record.state == "raised":
        return f"rank {record.rank} {where} and raised {record.error} at {_place(record.stands_at)}"
    if record.state == "ended":
        return f"rank {record.rank} {where} and has left the loop"
    return f"rank {record.rank} {where} and stands at {_place(record.stands_at)}"


def _name(call: Collective) -> str:
    return f"{call.operation} of {call.dtype} {list(call.shape)}" if call.dtype else call.operation


def _place(at: SourceLine | None) -> str:
    return f"{PurePath(at.file).name}:{at.line}" if at else "an unknown line"


def _evidence(seen: CollectiveRecord) -> dict[str, object]:
    return {
        "waited_s": seen.waited,
        "ranks": {
            record.rank: {
                "state": record.state,
                "stands_at": _place(record.stands_at) if record.stands_at else None,
                "last_call": _name(record.calls[-1]) if record.calls else None,
                "calls": len(record.calls),
            }
            for record in seen.ranks
        },
    }
