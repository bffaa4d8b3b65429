"""Judge observations with rules: findings, rules examined, and rules not examined with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Unexamined
from debugkit.frames import one_line
from debugkit.rule import Context, Mode, Rule

Observations = dict[type, object]
"""Observations by type."""


def judge(
    rules: Iterable[Rule],
    seen: Observations,
    missing: Mapping[type, Unexamined],
    declare: Declare,
    *,
    mode: Mode,
    step: int | None = None,
    ended: bool = False,
) -> tuple[list[Finding], list[str], list[Unexamined]]:
    """Judge the observations with each rule. Returns findings, codes examined and rules not examined."""
    findings: list[Finding] = []
    examined: list[str] = []
    unexamined: list[Unexamined] = []
    for rule in rules:
        absent = next((kind for kind in rule.needs if kind not in seen), None)
        if absent is not None:
            known = missing.get(absent)
            why = known.why if known else f"{absent.__name__} cannot be observed here."
            unexamined.append(Unexamined(rule.code, why, known.error if known else None))
            continue
        arguments = [seen[kind] for kind in rule.needs] + [seen.get(kind) for kind in rule.uses]
        reasons = {kind: missing[kind].why for kind in rule.uses if kind in missing and kind not in seen}
        try:
            found = list(rule.judge(*arguments, Context(rule, declare, mode, step, ended, reasons)))
        except NotExamined as limit:
            unexamined.append(Unexamined(rule.code, str(limit)))
        except Exception as error:
            unexamined.append(Unexamined(rule.code, f"The rule itself failed: {one_line(error)}.", error))
        else:
            findings += found
            examined.append(rule.code)
    return findings, examined, unexamined
