"""What a learner reads after `lab grade`: a ladder from the symptom to the next instrument, never a check's source.

The rungs are made once, as data; `plain_text` and `render` (rich) only lay them out. Text that came from the
submission is stripped of control characters first: it must not be able to draw a tick.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labs.grading.catalog import Lab
from labs.grading.grades import CheckResult, Grade

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_MARKS = {"passed": "✓", "failed": "✗", "error": "!", "not_run": "·"}
_STYLES = {"passed": "green", "failed": "red", "error": "yellow", "not_run": "dim"}
# C0 and C1 controls but newline, and the marks that reorder text.
_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_WIDTH = 100


@dataclass(frozen=True)
class Rung:
    """One labelled step of the ladder."""

    label: str
    text: str
    style: str = ""


def rungs(grade: Grade, lab: Lab) -> tuple[Rung, ...]:
    """What to say, in order; empty for a pass."""
    if grade.verdict == "passed":
        return ()
    if grade.verdict == "error":
        return (
            Rung("The grader failed", clean(grade.reason or "It does not know why."), "yellow"),
            Rung("What to do", "This is not your code's fault. `lab doctor` says what this machine lacks."),
        )
    failed = grade.failed_checks[0] if grade.failed_checks else None
    if failed is None and grade.recognised_wrong_fix is None:
        # Nothing ran, as with a syntax error: neither the symptom nor the seed has a part in it.
        return (Rung("What happened", clean(grade.reason or ""), "red"), Rung("Stuck?", f"lab hint {lab.id}", "cyan"))
    # Where a silent lab's code raises, it is the learner's edit that raises: the lab's own symptom would mislead.
    broken = failed if failed is not None and failed.raised and lab.loudness == "silent" else None
    found = [Rung("Symptom", lab.symptom)]
    if broken is not None:
        found = [Rung("Your code raised", clean(broken.message), "red")]
    if failed is not None:
        found += [Rung("Does not hold", failed.property, "bold")]
    if grade.recognised_wrong_fix is not None:
        found += [Rung("What happened", clean(grade.reason or ""), "red")]
    if failed is not None and broken is None:
        found += _measurements(failed)
    again = f"`lab grade {lab.id} --seed {grade.seed}` repeats this grade exactly"
    found += [Rung("Seed", f"{grade.seed} ({again})", "dim")]
    if failed is not None:
        found += _instrument(failed, lab)
    return (*found, Rung("Stuck?", f"lab hint {lab.id}", "cyan"))


def _instrument(failed: CheckResult, lab: Lab) -> list[Rung]:
    """What to measure with: a command that runs as printed, and the call that does it in a project of one's own."""
    if failed.instrument.startswith("lab "):
        return [Rung("Measure next", failed.instrument, "cyan")]
    return [Rung("Measure next", f"lab diagnose {lab.id}", "cyan"), Rung("In own code", failed.instrument, "cyan")]


def plain_text(grade: Grade, lab: Lab) -> str:
    """The feedback for a log or a pipe: no colour, no box."""
    lines = [f"{_MARKS[grade.verdict]} Lab {lab.id} · {lab.title} · {grade.verdict} in {grade.seconds:.1f} s", ""]
    lines += [f"  {_MARKS[check.outcome]} {check.title}{_aside(check)}" for check in grade.checks]
    ladder = rungs(grade, lab)
    if grade.checks and ladder:
        lines.append("")
    wide = max((len(rung.label) for rung in ladder), default=0)
    for rung in ladder:
        first, *rest = rung.text.splitlines() or [""]
        lines.append(f"  {rung.label:<{wide}}  {first}")
        lines += [f"  {'':<{wide}}  {line}" for line in rest]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def render(grade: Grade, lab: Lab) -> RenderableType:
    """The feedback for a terminal, as something rich prints."""
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    style = _STYLES[grade.verdict]
    parts: list[RenderableType] = [_tick(check) for check in grade.checks]
    ladder = rungs(grade, lab)
    if ladder:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), expand=False)
        table.add_column(style="dim", no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        for rung in ladder:
            table.add_row(rung.label, Text(rung.text, style=rung.style))
        parts += [Text(""), table] if parts else [table]
    return Panel(
        Group(*parts),
        title=Text(f"{_MARKS[grade.verdict]} Lab {lab.id} · {lab.title}", style=f"bold {style}"),
        title_align="left",
        subtitle=Text(f"{grade.verdict} · {grade.seconds:.1f} s", style=style),
        subtitle_align="right",
        border_style=style,
        box=box.ROUNDED,
        padding=(1, 2),
        width=_WIDTH,
    )


def clean(text: str) -> str:
    """Text from a submission with nothing in it that a terminal would obey."""
    return _UNPRINTABLE.sub("�", text.replace("\t", "    "))


def _measurements(check: CheckResult) -> list[Rung]:
    found = []
    in_words_only = bool(check.message) and any(_is_array(value) for value in (check.measured, check.expected))
    if not in_words_only and (check.measured is not None or check.expected is not None):
        found += [Rung("Measured", _value(check.measured), "red"), Rung("Expected", _value(check.expected), "green")]
    if check.message:
        found += [Rung("In words", clean(check.message))]
    return found


def _is_array(value: Any) -> bool:
    """Whether it is a tensor's numbers, which nobody reads: its message has the first place that differs."""
    return isinstance(value, list) and (len(value) > 4 or any(isinstance(item, list) for item in value))


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = clean(text)
    return text if len(text) <= 300 else text[:297] + "…"


def _tick(check: CheckResult) -> Text:
    from rich.text import Text

    line = Text(f"{_MARKS[check.outcome]} ", style=_STYLES[check.outcome])
    line.append(check.title, style="dim" if check.outcome == "not_run" else "default")
    line.append(_aside(check), style="dim")
    return line


def _aside(check: CheckResult) -> str:
    return "  (not run)" if check.outcome == "not_run" else ""
