"""The report as HTML: a page of its own, or a fragment for a notebook. Loads nothing from anywhere."""

from __future__ import annotations

import json
import re
from html import escape

from debugkit.finding import Finding
from debugkit.json_values import json_value
from debugkit.report.data import ReportData
from debugkit.report.not_examined import Group, groups, summary
from debugkit.report.wording import evidence_shown, evidence_text, place, plural, source_lines, verdict

_STYLE = """
.debugkit{font:14px/1.5 system-ui,sans-serif;max-width:60rem;color:#1f2328;background:#fff;padding:.2rem .8rem}
.debugkit p{margin:.3rem 0}.debugkit code,.debugkit pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace}
.debugkit .verdict{font-size:1.1rem;font-weight:600}.debugkit .quiet{color:#59636e}
.debugkit .verdict.good{color:#1a7f37}.debugkit .verdict.bad{color:#cf222e}.debugkit .verdict.fair{color:#9a6700}
.debugkit article{border:1px solid #d1d9e0;border-left-width:5px;border-radius:6px;padding:.5rem .9rem;margin:.8rem 0}
.debugkit .error{border-left-color:#cf222e}.debugkit .warning{border-left-color:#bf8700}
.debugkit .info{border-left-color:#0969da}.debugkit header{display:flex;flex-wrap:wrap;gap:0 .7rem}
.debugkit header .place{margin-left:auto}.debugkit header a{font-weight:600;color:inherit;text-decoration:none}
.debugkit header a:hover{text-decoration:underline}.debugkit .severity{font-weight:700}
.debugkit .error .severity{color:#cf222e}.debugkit .warning .severity{color:#9a6700}
.debugkit .info .severity{color:#0969da}
.debugkit pre{background:#f6f8fa;color:inherit;padding:.4rem .6rem;border-radius:6px;overflow-x:auto;margin:.4rem 0}
.debugkit mark{background:#fff1c2;color:inherit;display:inline-block;min-width:100%}
.debugkit dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.4rem 0 0}
.debugkit dt{font-weight:600}.debugkit dd{margin:0;overflow-wrap:anywhere}.debugkit summary{cursor:pointer}
.debugkit table{border-collapse:collapse;margin:.2rem 0 .6rem}
.debugkit td{padding:.1rem .8rem .1rem 0;vertical-align:top;text-align:left;border:0;background:none}
@media (prefers-color-scheme:dark){.debugkit{color:#e6edf3;background:#0d1117}.debugkit pre{background:#161b22}
.debugkit mark{background:#4b3a00}.debugkit article{border-color:#30363d}.debugkit .quiet{color:#9198a1}
.debugkit .error{border-left-color:#f85149}.debugkit .warning{border-left-color:#d29922}
.debugkit .info{border-left-color:#4493f8}.debugkit .verdict.good{color:#3fb950}
.debugkit .verdict.bad,.debugkit .error .severity{color:#f85149}
.debugkit .verdict.fair,.debugkit .warning .severity{color:#d29922}.debugkit .info .severity{color:#4493f8}}
"""


def page(report: ReportData) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>debugkit report</title>'
        '<meta name="viewport" content="width=device-width"></head><body>'
        f"{fragment(report)}</body></html>\n"
    )


def fragment(report: ReportData) -> str:
    """What a notebook shows."""
    text, quality = verdict(report)
    failure = (
        '<article class="error"><header><span class="severity">FAILED</span></header>'
        f"<p>{escape(report.failure)}</p></article>"
        if report.failure
        else ""
    )
    return (
        f'<style>{_STYLE}</style><div class="debugkit">'
        f'<p class="quiet"><strong>debugkit</strong> {escape(report.title)}</p>'
        f'<p class="verdict {quality}">{escape(text)}</p>{failure}'
        f"{''.join(_article(*group) for group in report.by_cause)}{_limits(report)}</div>"
    )


def _article(finding: Finding, consequences: list[Finding]) -> str:
    where = place(finding.location)
    rows = [("evidence", f"<code>{_evidence(finding)}</code>")] if evidence_shown(finding) else []
    rows += [("fix", _prose(finding.fix))]
    rows += [("explains", f"<code>{escape(each.code)}</code> {_prose(each.message)}") for each in consequences]
    listed = "".join(f"<dt>{label}</dt><dd>{text}</dd>" for label, text in rows)
    return (
        f'<article class="{finding.severity}"><header>'
        f'<span class="severity" title="certainty: {finding.certainty}">{finding.severity.upper()}</span>'
        f'<a href="{escape(finding.url)}">{escape(finding.code)} {escape(finding.name)}</a>'
        f'<code class="place quiet">{escape(where)}</code></header>'
        f"<p>{_prose(finding.message)}</p>{_source(finding)}<dl>{listed}</dl></article>"
    )


def _prose(text: str) -> str:
    """A message or a fix, with code for what is in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _evidence(finding: Finding) -> str:
    """Each value in short form, with the whole of it as a tooltip."""
    return " &ensp;".join(
        f'<span title="{escape(json.dumps(json_value(value), ensure_ascii=False))}">'
        f"{escape(key)}={escape(evidence_text(value))}</span>"
        for key, value in evidence_shown(finding)
    )


def _source(finding: Finding) -> str:
    lines = [
        f"<mark>{number:>5}  {escape(text)}</mark>"
        if number == finding.location.line
        else f"{number:>5}  {escape(text)}"
        for number, text in source_lines(finding.location)
    ]
    return f"<pre>{chr(10).join(lines)}</pre>" if lines else ""


def _limits(report: ReportData) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    known = (
        f"<p>{plural(len(report.known), 'finding')} known from the baseline: "
        f"{escape(' '.join(finding.code for finding in report.known))}</p>"
        if report.known
        else ""
    )
    examined = f"<p>Examined: {escape(' '.join(report.examined))}</p>" if report.examined else ""
    listed = "".join(map(_group, groups(report)))
    what = f"Not examined: {summary(report)}" if report.not_examined else "Every rule was examined"
    return (
        f'<details class="quiet"><summary>{escape(what)}</summary>{listed}{known}{examined}'
        f"<p>{escape(versions)}</p></details>"
    )


def _group(group: Group) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(' '.join(codes))}</code></td><td>{escape(why)}</td></tr>"
        for why, codes in group.by_reason.items()
    )
    return f"<p><strong>{escape(group.heading)}</strong></p><table>{rows}</table>"
