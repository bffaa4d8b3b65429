"""The results of a class as CSV and as one HTML page."""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from labs.classroom.results import Result
from labs.classroom.similarity import Pair
from labs.classroom.submissions import nothing_submitted
from labs.grading.catalog import Lab

COLUMNS = ("student", "lab", "verdict", "wrong_fix", "reason", "seconds", "seed", "graded_at", "signature")
_MARKS = {"passed": "✓", "failed": "✗", "error": "!", "missing": "–"}
_STYLE = """
:root { color-scheme: light dark; --line: #8886; }
:root { --good: light-dark(#1a7f37, #4ac26b); --bad: light-dark(#b3261e, #ff8a80); --quiet: light-dark(#666, #aaa); }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left; vertical-align: top; }
td.passed { color: var(--good); } td.failed, td.error { color: var(--bad); } td.missing, small { color: var(--quiet); }
"""


def as_csv(results: Sequence[Result]) -> str:
    """One row for each learner and lab. A cell that a spreadsheet would run as a formula begins with an apostrophe."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for one in results:
        writer.writerow(csv_row(one))
    return buffer.getvalue()


def csv_row(one: Result) -> list[str]:
    """The cells of a result's row."""
    return [_cell(getattr(one, column)) for column in COLUMNS]


def _cell(value: object) -> str:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else str(value)


def as_html(
    results: Sequence[Result], labs: Sequence[Lab], pairs: Mapping[str, Sequence[Pair]], not_read: Sequence[str] = ()
) -> str:
    """Who passed what, what was misunderstood most often, and which submissions are near-identical."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Class results</title><style>{_STYLE}</style></head><body>",
        "<h1>Class results</h1>",
        _summary(results, labs),
        *([f"<p>Not read: {escape(', '.join(not_read))}: a folder or a zip for each learner.</p>"] if not_read else []),
        _learners(results, labs),
        _misunderstood(results, labs),
        _similar(labs, pairs),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _summary(results: Sequence[Result], labs: Sequence[Lab]) -> str:
    counts = Counter(one.verdict for one in results)
    learners = len({one.student for one in results})
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _MARKS if counts[verdict])
    hours = sum(one.seconds for one in results) / 3600
    who = f"{learners} {'learner' if learners == 1 else 'learners'}"
    what = f"{len(labs)} {'lab' if len(labs) == 1 else 'labs'}"
    return f"<p>{who}, {what}: {told}. Grading took {hours:.1f} hours of one process.</p>"


def _learners(results: Sequence[Result], labs: Sequence[Lab]) -> str:
    by_key = {(one.student, one.lab): one for one in results}
    heads = ((lab.id, f"{escape(lab.title)}{_usual_time(results, lab)}") for lab in labs)
    head = "".join(f'<th scope="col">{number}<br><small>{small}</small></th>' for number, small in heads)
    rows = []
    for student in sorted({one.student for one in results}):
        cells = [_verdict(by_key.get((student, lab.id))) for lab in labs]
        passed = sum(one.verdict == "passed" for one in results if one.student == student)
        rows.append(f'<tr><th scope="row">{escape(student)}</th><td>{passed}</td>{"".join(cells)}</tr>')
    return (
        '<h2>Learners</h2>\n<div class="wide" tabindex="0"><table>'
        f'<thead><tr><th scope="col">Learner</th><th scope="col">Passed</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _usual_time(results: Sequence[Result], lab: Lab) -> str:
    seconds = [one.seconds for one in results if one.lab == lab.id and one.verdict != "missing"]
    return f"<br>{statistics.median(seconds):.0f} s a grade" if seconds else ""


def _verdict(one: Result | None) -> str:
    if one is None:
        return "<td></td>"
    aside = one.wrong_fix or ("" if one.verdict == "passed" else one.reason)
    small = f"<br><small>{escape(aside)}</small>" if aside and one.reason != nothing_submitted(one.lab) else ""
    return f'<td class="{one.verdict}">{_MARKS[one.verdict]} {one.verdict}{small}</td>'


def _misunderstood(results: Sequence[Result], labs: Sequence[Lab]) -> str:
    rows = []
    for lab in labs:
        failed = [one for one in results if one.lab == lab.id and one.verdict == "failed"]
        fixes = Counter(one.wrong_fix for one in failed if one.wrong_fix)
        checks = Counter(one.failed_checks[0] for one in failed if one.failed_checks)
        for what, counts in (("wrong fix", fixes), ("first failed check", checks)):
            rows += [
                f"<tr><td>{lab.id}</td><td>{what}</td><td>{escape(name)}</td><td>{count}</td></tr>"
                for name, count in counts.most_common(5)
            ]
    if not rows:
        return "<h2>Misunderstood most often</h2>\n<p>No submission failed a check.</p>"
    return (
        '<h2>Misunderstood most often</h2>\n<div class="wide" tabindex="0"><table><thead><tr><th scope="col">Lab</th>'
        '<th scope="col">What</th><th scope="col">Name</th><th scope="col">Learners</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _similar(labs: Sequence[Lab], pairs: Mapping[str, Sequence[Pair]]) -> str:
    said = (
        "<p>What these learners added to the starter is nearly the same, comments included. That proves nothing: they "
        "may have worked together as allowed, or have found the same text. Read both files before you conclude.</p>"
    )
    rows = [
        f"<tr><td>{lab.id}</td><td>{escape(pair.first)}</td><td>{escape(pair.second)}</td>"
        f"<td>{100 * pair.similarity:.0f} %</td></tr>"
        for lab in labs
        for pair in pairs.get(lab.id, ())
    ]
    if not rows:
        return "<h2>Near-identical submissions</h2>\n<p>None were found.</p>"
    return (
        f'<h2>Near-identical submissions</h2>\n{said}\n<div class="wide" tabindex="0"><table><thead><tr>'
        '<th scope="col">Lab</th><th scope="col">Learner</th><th scope="col">Learner</th>'
        f'<th scope="col">In common</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )
