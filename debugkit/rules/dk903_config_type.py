"""A value of the configuration has another type than it seems to: "1e-4" is text, a key stands twice.

## What it finds
Text that reads as a number in scientific notation, or where another config of the composition gives the same key a
number. `None` and quoted `"true"`: both are text, and both are true. A key that one mapping of a file holds twice.

## Why it hurts
YAML's own idea of a number wants a dot: PyYAML reads `lr: 1e-4` as text. (OmegaConf, and so Hydra, reads a number; a
script that calls `yaml.safe_load`, and a quoted override, do not.) Some optimizers fail on it, `if cfg.checkpoint:`
does not: `"None"` is a path like any other. Of a key that stands twice, PyYAML silently keeps the last.

## Evidence
The key, the text, what it reads as, and the types that the same key has elsewhere; both lines of a repeated key.

## Fix
`1.0e-4` is a number to every YAML reader. `null` is YAML's nothing. Type the config (a structured config converts or
refuses), and delete the line that is not meant.

## When it stays silent
Numbers that OmegaConf reads as numbers; version numbers, names, identifiers, dates and times, which are text that looks
like a number; `on`, `off`, `yes` and `no` in quotes, which are modes of some libraries. Other text that reads as a
plain number, such as `"64"`, is an `info`.

## Cost
Free.

## Lesson
No lab of its own; lesson 93 has an exercise on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.config_composition import reads_as
from debugkit.observations.config_values import ConfigValue, ConfigValues
from debugkit.registry import Context, rule

_SCIENTIFIC = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_NAMES = re.compile(
    r"(^|_)(version|base|id|uid|uuid|name|tag|tags|date|time|run|job|hash|commit|code|key|token|label|"
    r"prefix|suffix|walltime|image|python|cuda|device|devices|gpu|gpus)s?$"
)
"""Keys whose text may well look like a number and be meant as text."""


@rule(
    "DK903",
    name="config-type",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    cost="F",
    modes=("config",),
    needs=(ConfigValues,),
)
def judge(seen: ConfigValues, context: Context) -> Iterator[Finding]:
    if not seen.leaves and not seen.repeated:
        raise NotExamined("No configuration was given: pass cfg, config_dir= or files=.")
    for key in seen.repeated:
        yield context.finding(
            f"{key.key} stands twice in one mapping, in lines {key.first_line} and {key.at.line}: "
            "PyYAML keeps the second without a word, OmegaConf refuses the file.",
            at=key.at,
            evidence={"key": key.key, "lines": [key.first_line, key.at.line], "threshold": "one line"},
            fix="Delete the line that is not meant.",
            severity=Severity.ERROR,
            certainty=Certainty.PROOF,
        )
    for text in seen.texts:
        finding = _of_text(text, context)
        if finding is not None:
            yield finding


def _of_text(text: ConfigValue, context: Context) -> Finding | None:
    reading = reads_as(text.value)
    bare = text.value.strip()
    numbers = sorted({"int", "float"}.intersection(text.elsewhere))
    severity, certainty = Severity.WARNING, Certainty.HEURISTIC
    if reading == "a number":
        if numbers:
            severity, certainty = Severity.ERROR, Certainty.PROOF
        elif not _SCIENTIFIC.fullmatch(bare):
            if _NAMES.search(text.key.rpartition(".")[2].lower()) or re.match(r"0\d", bare):
                return None
            severity = Severity.INFO
        fix = f"Write {_as_number(bare)} without quotes, which every YAML reader takes for a number."
    elif bare == "None":
        fix = "Write null: in YAML, None is a word of four letters, and true."
    elif bare.lower() in ("true", "false"):
        fix = f"Write {bare.lower()} without quotes: the text is true either way."
    else:
        return None
    before = f", and another config gives it a number ({', '.join(numbers)})" if numbers else ""
    where = f" ({text.source})" if text.source else ""
    return context.finding(
        f"{text.key} is the text {text.value!r}, which reads as {reading}{before}{where}.",
        at=text.at,
        evidence={"key": text.key, "value": text.value, "reads as": reading, "types elsewhere": list(text.elsewhere)},
        fix=fix,
        severity=severity,
        certainty=certainty,
    )


def _as_number(text: str) -> str:
    mantissa, mark, exponent = text.lower().partition("e")
    return f"{mantissa}.0e{exponent}" if mark and "." not in mantissa else text
