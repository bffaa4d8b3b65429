"""The report as HTML: a page of its own, or a fragment for a notebook. Loads nothing from anywhere."""

from __future__ import annotations

import json
from html import escape

from debugkit.finding import Finding
from debugkit.report import Report
from debugkit.report.json import plain
from debugkit.report.places import place, plural, source_lines

_STYLE = """
.debugkit{font:15px/1.5 system-ui,sans-serif;max-width:60rem;color:#1f2328;background:#fff}
.debugkit h1{font-size:1.25rem;margin:.2em 0}.debugkit .title{color:#59636e}
.debugkit article{border:1px solid #d1d9e0;border-left-width:6px;border-radius:6px;padding:.6rem 1rem;margin:1rem 0}
.debugkit .error{border-left-color:#cf222e}.debugkit .warning{border-left-color:#9a6700}
.debugkit .info{border-left-color:#0969da}.debugkit h2{font-size:1rem;margin:0}
.debugkit h2 code{margin-right:.5em}.debugkit pre{background:#f6f8fa;padding:.5rem;overflow-x:auto;margin:.5rem 0}
.debugkit mark{background:#fff1c2;display:inline-block;min-width:100%}.debugkit .place{color:#59636e}
.debugkit dt{font-weight:600;float:left;clear:left;width:6rem}.debugkit dd{margin:0 0 .2rem 6rem}
.debugkit table{border-collapse:collapse}.debugkit td{padding:.1rem .8rem .1rem 0;vertical-align:top}
@media (prefers-color-scheme:dark){.debugkit{color:#e6edf3;background:#0d1117}.debugkit pre{background:#161b22}
.debugkit mark{background:#4b3a00;color:inherit}.debugkit article{border-color:#30363d}
.debugkit .title,.debugkit .place{color:#9198a1}}
"""


def page(report: Report) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>debugkit report</title>'
        '<meta name="viewport" content="width=device-width"></head><body>'
        f"{fragment(report)}</body></html>\n"
    )


def fragment(report: Report) -> str:
    """What a notebook shows."""
    failure = f'<article class="error"><p>{escape(report.failure)}</p></article>' if report.failure else ""
    return (
        f'<style>{_STYLE}</style><div class="debugkit"><h1>{escape(_heading(report))}</h1>'
        f'<p class="title">{escape(report.title)}</p>{failure}'
        f"{''.join(_article(*group) for group in report.by_cause)}{_limits(report)}</div>"
    )


def _heading(report: Report) -> str:
    if report.failure and not report.findings:
        return "The observed step failed"
    return plural(len(report.causes), "finding") if report.causes else "Nothing found"


def _article(finding: Finding, consequences: list[Finding]) -> str:
    explains = "".join(
        f"<dt>explains</dt><dd><code>{escape(other.code)}</code> {escape(other.message)}</dd>" for other in consequences
    )
    evidence = escape(json.dumps(plain(finding.evidence), ensure_ascii=False))
    return (
        f'<article class="{finding.severity}"><h2><code>{escape(finding.code)}</code>{escape(finding.name)}</h2>'
        f'<div class="place">{escape(str(finding.severity))}, {escape(str(finding.certainty))}'
        f"{escape(' · ' + place(finding.location) if place(finding.location) else '')}</div>"
        f"<p>{escape(finding.message)}</p>{_source(finding)}"
        f"<dl><dt>fix</dt><dd>{escape(finding.fix)}</dd><dt>evidence</dt><dd><code>{evidence}</code></dd>{explains}"
        f'<dt>page</dt><dd><a href="{escape(finding.url)}">{escape(finding.url)}</a></dd></dl></article>'
    )


def _source(finding: Finding) -> str:
    lines = [
        f"<mark>{number:>5}  {escape(text)}</mark>"
        if number == finding.location.line
        else f"{number:>5}  {escape(text)}"
        for number, text in source_lines(finding.location)
    ]
    return f"<pre>{chr(10).join(lines)}</pre>" if lines else ""


def _limits(report: Report) -> str:
    examined = f"<p>{plural(len(report.examined), 'rule')} examined: {escape(' '.join(report.examined))}</p>"
    if not report.not_examined:
        return examined
    rows = "".join(
        f"<tr><td><code>{escape(entry.code)}</code></td><td>{escape(entry.why)}</td></tr>"
        for entry in report.not_examined
    )
    summary = f"{plural(len(report.not_examined), 'rule')} not examined"
    return f"{examined}<details><summary>{summary}</summary><table>{rows}</table></details>"
