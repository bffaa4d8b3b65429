"""Ranks call different collectives, or a rank is missing from a collective in which the others wait.

## What it finds
Every watched rank records its last 32 collectives: operation, shape, dtype, group, number and line. When a collective
fails or runs into its timeout, the records of all ranks are compared. The finding names the missing rank and the line
that it is executing, or the first call that is not the same on all ranks.

## Why it hurts
A hang has no traceback. The ranks without a fault wait, while the faulty one is somewhere else: it writes a file, stops
at a breakpoint, or has caught an exception. After the timeout (ten minutes on NCCL), the waiting rank is the one that
raises. Different shapes do not always raise: with gloo, one of two ranks may continue with wrong values.

## Evidence
The call and its number, what each rank called there, the state and line of each rank, and how long this rank waited.

## Fix
All ranks of a group must make the same calls. Move collectives out of `if rank == 0`, out of branches that depend on
the data, and out of loops whose length differs between ranks. If some ranks have finished DDP's backward and others
wait in it, see DK801: they used fewer parameters. Ranks without a record were not started, or do not run under
`watch()`.

## When it stays silent
All collectives return. Subgroups are compared only among their own ranks. Calls whose shapes may differ (gather,
scatter, all_to_all) are compared by operation only. Point-to-point messages are not recorded.

## Cost
A few microseconds per collective, and a thread that writes a message to the store of the process group every half
second. On a timeout NCCL ends the process before Python can report anything, so after 30 s of waiting the thread writes
the comparison to the log. A rank that is only slow appears in that log and not in the report.

## Lesson
[Lab 81](../../lessons/distributed/81_one_waits.md), [Lab 92](../../lessons/frameworks/92_stuck_after_the_epoch.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import code, listed

BACKWARD = "backward of DistributedDataParallel"
State = Literal["running", "ended", "raised", "silent"]
"""silent: the rank has published no record, so it was not started or is not watched."""


@dataclass(frozen=True)
class Collective(PlainData):
    """One call. `group` are the ranks that must all make it; `number` counts the calls of that group from 0.

    `shape` and `dtype` are those of its tensor if they must be the same on every rank, otherwise empty. `done` is
    whether the call has returned. `operation` may be `BACKWARD`, which averages gradients.
    """

    operation: str
    group: tuple[int, ...]
    number: int
    shape: tuple[int, ...]
    dtype: str
    at: SourceLine | None
    done: bool


@dataclass(frozen=True)
class RankRecord(PlainData):
    """The last calls of one rank, oldest first; `stands_at` is the line that its main thread is executing."""

    rank: int
    state: State
    calls: tuple[Collective, ...] = ()
    stands_at: SourceLine | None = None
    error: str = ""


@observed_by(".measure:CollectivesProbe", processes=2)
@dataclass(frozen=True)
class CollectiveRecord(PlainData):
    """The records of all ranks as `rank` could read them, including its own.

    `compared` is False until a call takes too long; `waited` is for how many seconds the current call has not returned.
    """

    rank: int
    world_size: int
    compared: bool
    waited: float
    ranks: tuple[RankRecord, ...]


@rule(
    "DK804",
    name="collective-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
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
        missing = [record for record in seen.ranks if record.rank in waiting.group and not _is_in(record, waiting)]
        if missing and not waiting.done:
            yield _missing_ranks(seen, waiting, missing, context)


def _first_different(records: Sequence[RankRecord], group: tuple[int, ...]) -> dict[int, Collective] | None:
    """Rank → call, at the first number at which the calls of two ranks differ; None if all agree."""
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
    """Whether a rank waits in this call."""
    return record.state != "silent" and any(
        (own.group, own.number, own.done) == (call.group, call.number, False) for own in record.calls
    )


def _mismatch(seen: CollectiveRecord, calls: dict[int, Collective], context: Context) -> Finding:
    number = next(iter(calls.values())).number
    each = "; ".join(f"rank {rank} called {_name(call)} at {_shown(call.at)}" for rank, call in sorted(calls.items()))
    other = next(call for rank, call in sorted(calls.items()) if _name(call) != _name(calls[min(calls)]))
    return context.finding(
        f"Collective {number} of this group is not the same on all ranks: {each}.",
        at=other.at,
        evidence=_evidence(seen) | {"number": number},
        fix="Make the same calls in the same order on every rank, with tensors of the same shape and dtype.",
    )


def _missing_ranks(
    seen: CollectiveRecord, waiting: Collective, missing: Sequence[RankRecord], context: Context
) -> Finding:
    states = listed(_state_of(record, waiting) for record in missing)
    return context.finding(
        f"Rank {seen.rank} waits in collective {waiting.number}, {_name(waiting)} at {_shown(waiting.at)}; {states}.",
        at=next((record.stands_at for record in missing if record.stands_at), waiting.at),
        evidence=_evidence(seen) | {"number": waiting.number, "missing": [record.rank for record in missing]},
        fix="Find out why the rank is not in this call: a branch on its rank or its data, an exception, a shorter "
        "loader.",
    )


def _state_of(record: RankRecord, waiting: Collective) -> str:
    if record.state == "silent":
        return f"rank {record.rank} has published no record: it was not started, or does not run under `watch()`"
    finished = any((own.group, own.number) == (waiting.group, waiting.number) for own in record.calls)
    progress = f"rank {record.rank} {'has finished' if finished else 'never made'} this call"
    if record.state == "raised":
        return f"{progress} and raised {record.error} at {_shown(record.stands_at)}"
    if record.state == "ended":
        return f"{progress} and has left the loop"
    return f"{progress} and is at {_shown(record.stands_at)}"


def _name(call: Collective) -> str:
    operation = f"the {BACKWARD}" if call.operation == BACKWARD else code(call.operation)
    return f"{operation}{_tensor(call)}"


def _tensor(call: Collective) -> str:
    return f" of {call.dtype} {list(call.shape)}" if call.dtype else ""


def _shown(at: SourceLine | None) -> str:
    return code(_place(at)) if at else "an unknown line"


def _place(at: SourceLine) -> str:
    return f"{PurePath(at.file).name}:{at.line}"


def _evidence(seen: CollectiveRecord) -> dict[str, object]:
    return {
        "waited_s": seen.waited,
        "ranks": {
            record.rank: {
                "state": record.state,
                "stands_at": _place(record.stands_at) if record.stands_at else None,
                "last_call": f"{record.calls[-1].operation}{_tensor(record.calls[-1])}" if record.calls else None,
                "calls": len(record.calls),
            }
            for record in seen.ranks
        },
    }
