"""Rules that were not examined, grouped by what they need: one sentence for a terminal, headings for a full list.

A reason is a free sentence, and one that a caller can act on names the argument or the function in code. The groups
are read from those names, so a report that was read from a file is grouped as it was when it was made.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections import defaultdict
from dataclasses import dataclass

from debugkit.finding import Unexamined
from debugkit.report.data import ReportData


class Cause(enum.IntEnum):
    """Why rules were not examined, in the order in which the groups are listed."""

    BUG = 0
    """The examination itself failed."""
    FAILURE = 1
    """The step failed before it came that far."""
    NEED = 2
    """The caller can pass or call something."""
    IGNORED = 3
    NOT_APPLICABLE = 4


_NEEDS: tuple[tuple[str, str, str], ...] = (
    ("a step of a torch optimizer (there was none)", "", r"^No torch optimizer made a step"),
    ("a loop in this process (the script started others)", "", r"^The script started \d"),
    ("several processes", "", r"several processes|every rank|other rank|process group|in no group"),
    ("a Hydra configuration", "", r"check_config|track_reads|config was not tracked|config_dir=|run_dir=|directories="),
    ("a running loop: debugkit.watch", "", r"debugkit\.watch\b|use watch\("),
    ("a check before training: debugkit.check", "", r"debugkit\.check\b"),
    ("more steps of the loop", "", r"no complete step|steps have ended|run is too short"),
    ("a batch", "batch=", r"pass batch="),
    ("a loss function", "loss_fn=", r"pass loss_fn="),
    ("an optimizer", "optimizer=", r"pass optimizer="),
    ("a data loader", "dataloader=", r"pass dataloader=|data loader with a sampler"),
    ("a larger budget", "budget=, or select the rule alone", r"select it alone|select DK\d{3}\b"),
    ("a declaration", "declare=debugkit.Declare(…)", r"\bDeclare\("),
)
"""What a rule needs, how to give it, and how the sentence that says why it was not examined names it.

The first that matches counts.
"""
_BUG = re.compile(r"^(Observing it raised|The rule itself failed)")
_FAILURE = re.compile(r"^(The model raised|The training step raised|The loop raised|The step fails)")


@dataclass(frozen=True)
class Group:
    """The rules that were not examined for one kind of reason. `need` and `how` are empty unless the cause is NEED."""

    cause: Cause
    need: str
    how: str
    entries: tuple[Unexamined, ...]

    @property
    def heading(self) -> str:
        """`6 need a data loader: dataloader=`."""
        return f"{self.words}{f': {self.how}' if self.how else ''}"

    @property
    def by_reason(self) -> dict[str, list[str]]:
        """Each sentence with the codes of the rules that it holds for."""
        reasons: dict[str, list[str]] = defaultdict(list)
        for entry in self.entries:
            reasons[entry.why].append(entry.code)
        return dict(reasons)

    @property
    def words(self) -> str:
        """`6 need a data loader`."""
        one = len(self.entries) == 1
        words = {
            Cause.BUG: "failed in debugkit, which is a bug",
            Cause.FAILURE: "stopped by the failure",
            Cause.NEED: f"need{'s' * one} {self.need}",
            Cause.IGNORED: "ignored",
            Cause.NOT_APPLICABLE: f"do{'es' * one} not apply",
        }
        return f"{len(self.entries)} {words[self.cause]}"


def groups(report: ReportData) -> list[Group]:
    """The groups in the order of their causes; among those that need something, the largest first."""
    found: dict[tuple[Cause, str, str], list[Unexamined]] = defaultdict(list)
    for entry in report.not_examined:
        found[_kind(entry, report.failure)].append(entry)
    ordered = sorted(found.items(), key=lambda item: (item[0][0], -len(item[1])))
    return [Group(*kind, tuple(entries)) for kind, entries in ordered]


def summary(report: ReportData) -> str:
    """`50 rules (13 need a running loop: debugkit.watch, 5 a data loader; 14 do not apply)`."""
    total, parts = len(report.not_examined), []
    for _, each in itertools.groupby(groups(report), key=lambda group: group.cause):
        first, *further = each
        more = [f"{len(group.entries)} {group.need}" for group in further]  # only NEED has several groups
        parts.append(", ".join([first.words, *more]))
    return f"{total} rule{'s' * (total != 1)} ({'; '.join(parts)})"


def _kind(entry: Unexamined, failure: str | None) -> tuple[Cause, str, str]:
    """Cause, what is needed, how to give it."""
    if entry.error is not None or _BUG.match(entry.why):
        return Cause.BUG, "", ""
    if entry.why == failure or _FAILURE.match(entry.why):
        return Cause.FAILURE, "", ""
    if entry.why.startswith("Ignored"):
        return Cause.IGNORED, "", ""
    for need, how, pattern in _NEEDS:
        if re.search(pattern, entry.why):
            return Cause.NEED, need, how
    return Cause.NOT_APPLICABLE, "", ""
