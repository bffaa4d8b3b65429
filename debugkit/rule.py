"""The rule registry. Rules are declared with `@rule` and selected by code or prefix. Does not import torch."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from debugkit.declare import Declare
from debugkit.finding import Certainty, Finding, Location, NotExamined, Severity, SourceLine
from debugkit.observation import Measurement, measurement_of
from debugkit.rule_text import counted

Mode = Literal["check", "watch", "call", "loader", "distributed", "config"]
Judge = Callable[..., Iterable[Finding]]
AnyJudge = TypeVar("AnyJudge", bound=Judge)

DOCS_URL = "https://vla-debug-lab.github.io/vla-debug-lab/debugkit/rules"
FAMILIES = (
    "shapes",
    "gradients",
    "numerics",
    "data",
    "actions",
    "loop",
    "memory",
    "reproducibility",
    "distributed",
    "frameworks",
)
HEADINGS = ("What it finds", "Why it hurts", "Evidence", "Fix", "When it stays silent", "Lesson")


@dataclass(frozen=True)
class Rule:
    """A rule: its judge, the observations it needs, and its page."""

    code: str
    name: str
    severity: Severity
    certainty: Certainty
    modes: tuple[Mode, ...]
    needs: tuple[type, ...]
    uses: tuple[type, ...]
    consequence_of: tuple[str, ...]
    judge: Judge
    docstring: str = field(repr=False)
    module: str = ""

    @property
    def passes(self) -> float:
        """The cost of examining only this rule, in forward passes of the batch, without the observed step.

        Counts the observations in `needs`, or those in `uses` if `needs` is empty.
        """
        return sum(one.cost for one in self._measurements)

    @property
    def cost(self) -> str:
        """`F`: no cost besides the observed step or the loop. `3F`: three forward passes. `data`: reads a loader.
        `2P`: needs two processes. Computed from the declarations of the measurements."""
        if any(one.processes > 1 for one in self._measurements):
            return "2P"
        if self.passes:
            return f"{self.passes:g}F"
        return "data" if any("dataloader" in one.requires for one in self._measurements) else "F"

    @property
    def cost_in_words(self) -> str:
        """The cost for a reader, with its short form: ``3 forward passes of the batch (`3F`)``."""
        if self.modes == ("watch",) and not self.passes:
            return (
                "Observed in the running loop (`2P`: on two processes or more)" if self.cost == "2P" else "Free (`F`)"
            )
        if self.passes:
            return f"{self.passes:g} forward pass{'es' * (self.passes != 1)} of the batch (`{self.cost}`)"
        return "No forward pass; batches of the loader are read (`data`)" if self.cost == "data" else "Free (`F`)"

    @property
    def page(self) -> str:
        """The rule's page in Markdown: its docstring and the cost of its measurements."""
        before, lesson, after = self.docstring.partition("## Lesson")
        text, _, remark = before.partition("## Cost\n")
        cost = " ".join(part for part in (f"{self.cost_in_words}.", remark.strip()) if part)
        return f"{text.rstrip()}\n\n## Cost\n{cost}\n\n{lesson}{after}"

    @property
    def _measurements(self) -> tuple[Measurement, ...]:
        return tuple(measurement_of(kind) for kind in self.needs or self.uses)

    @property
    def family(self) -> str:
        """The family, from the hundreds digit of the code."""
        return FAMILIES[int(self.code[2])]

    @property
    def summary(self) -> str:
        """The first line of the page."""
        return self.docstring.partition("\n")[0]

    @property
    def url(self) -> str:
        """The rule's page on the site."""
        return f"{DOCS_URL}/{self.module.rpartition('.')[2]}/"


@dataclass(frozen=True)
class Context:
    """The further input of a judge besides its observations, and the method that creates its findings."""

    rule: Rule
    declare: Declare = field(default_factory=Declare)
    mode: Mode = "check"
    step: int | None = None
    """The training step just observed, under `watch()`."""
    ended: bool = False
    """Whether the watched loop has ended without an error, so that nothing more will be observed."""
    missing: Mapping[type, str] = field(default_factory=dict)
    """Why optional observations were not made. A rule whose `uses` are all missing may raise such a reason."""

    def finding(
        self,
        message: str,
        *,
        fix: str,
        module: str | None = None,
        parameter: str | None = None,
        at: SourceLine | None = None,
        step: int | None = None,
        input: str | None = None,
        evidence: Mapping[str, object] | None = None,
        severity: Severity | None = None,
        certainty: Certainty | None = None,
        affects: Sequence[str] = (),
    ) -> Finding:
        """A finding of this rule. By default it has the rule's severity and certainty."""
        return Finding(
            code=self.rule.code,
            name=self.rule.name,
            severity=severity or self.rule.severity,
            certainty=certainty or self.rule.certainty,
            message=message,
            location=Location(
                module=module,
                parameter=parameter,
                file=at.file if at else None,
                line=at.line if at else None,
                step=self.step if step is None else step,
                input=input,
            ),
            evidence=dict(evidence or {}),
            fix=fix,
            url=self.rule.url,
            affects=tuple(affects),
        )


def or_too_short(
    findings: Iterable[Finding], seen: int, needed: int, noun: str = "step", plural: str | None = None
) -> Iterator[Finding]:
    """The findings. If there are none and fewer than `needed` steps were seen, raise NotExamined.

    >>> list(or_too_short([], seen=20, needed=20))
    []
    """
    found = list(findings)
    if not found and seen < needed:
        raise NotExamined(f"The run is too short: {seen:,} of {counted(needed, noun, plural)}.")
    yield from found


class UnknownCodeError(ValueError):
    """A code or prefix that matches no rule. The message shows how to list all rules."""


_RULES: dict[str, Rule] = {}


def rule(
    code: str,
    *,
    name: str,
    severity: Severity,
    certainty: Certainty,
    modes: Sequence[Mode],
    needs: Sequence[type],
    uses: Sequence[type] = (),
    consequence_of: Sequence[str] = (),
) -> Callable[[AnyJudge], AnyJudge]:
    """Register `judge(*needs, *uses, context)` as the rule `code`; see `debugkit.rules` for how to write one.

    `needs` are the observation types that the rule requires. Without them it is not examined. `uses` are optional
    observation types; a missing one is passed as None. `consequence_of` lists the rules whose findings explain findings
    of this rule at locations that they cover. Raises ValueError if the code is malformed or used by another module.
    """
    if not re.fullmatch(r"DK\d{3}", code):
        raise ValueError(f"{code!r} is not a rule code: a code is DK and three digits, e.g. DK002.")

    def register(judge: AnyJudge) -> AnyJudge:
        taken = _RULES.get(code)
        if taken is not None and taken.module != judge.__module__:
            raise ValueError(f"{code} is declared twice: in {taken.module} and in {judge.__module__}.")
        _RULES[code] = Rule(
            code=code,
            name=name,
            severity=severity,
            certainty=certainty,
            modes=tuple(modes),
            needs=tuple(needs),
            uses=tuple(uses),
            consequence_of=tuple(consequence_of),
            judge=judge,
            docstring=inspect.cleandoc(sys.modules[judge.__module__].__doc__ or ""),
            module=judge.__module__,
        )
        return judge

    return register


@functools.cache
def _load_rules() -> None:
    package = importlib.import_module("debugkit.rules")
    for module in pkgutil.iter_modules(package.__path__):
        if re.match(r"dk\d{3}_", module.name):
            importlib.import_module(f"debugkit.rules.{module.name}")


def all_rules() -> tuple[Rule, ...]:
    """All rules, ordered by code."""
    _load_rules()
    return tuple(_RULES[code] for code in sorted(_RULES))


def find_rule(code: str) -> Rule:
    """The rule with this code or name: `DK002`, `dk002` or `silent-broadcast`. Raises UnknownCodeError."""
    for known in all_rules():
        if code.upper() == known.code or code.lower().replace("_", "-") == known.name:
            return known
    raise UnknownCodeError(f"There is no rule {code}. `debugkit rules` lists them all.")


def codes_in(text: str | Iterable[str] | None) -> list[str] | None:
    """The codes and prefixes as a list. A string may hold several, as on the command line.

    >>> codes_in("DK1, DK5"), codes_in(["DK1"]), codes_in(None)
    (['DK1', 'DK5'], ['DK1'], None)
    """
    if isinstance(text, str):
        return [part for part in re.split(r"[,\s]+", text) if part]
    return None if text is None else list(text)


def choose(
    rules: Iterable[Rule], select: Sequence[str] | None, ignore: Iterable[str] | None = None
) -> tuple[Rule, ...]:
    """The rules whose code starts with a prefix in `select` (all by default) and with no prefix in `ignore`.

    As in ruff, the longest matching prefix wins: with `DK1` and `DK101` selected and `DK10` ignored, DK101 is kept.
    Raises UnknownCodeError for a prefix that matches no rule, so that a mistyped code is reported.
    """
    wanted = None if select is None else [prefix.upper() for prefix in select]
    unwanted = [prefix.upper() for prefix in ignore or ()]
    codes = [known.code for known in all_rules()]
    for prefix in [*(wanted or []), *unwanted]:
        if not any(code.startswith(prefix) for code in codes):
            raise UnknownCodeError(f"No rule's code starts with {prefix!r}. `debugkit rules` lists them all.")

    def longest(code: str, prefixes: Sequence[str]) -> int:
        return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)

    return tuple(
        candidate
        for candidate in rules
        if (0 if wanted is None else longest(candidate.code, wanted)) > longest(candidate.code, unwanted)
    )


def as_json(rules: Iterable[Rule]) -> dict[str, Any]:
    """The document of `debugkit rules --json`."""
    return {
        "schema": 1,
        "rules": [
            {
                "code": known.code,
                "name": known.name,
                "family": known.family,
                "severity": str(known.severity),
                "certainty": str(known.certainty),
                "cost": known.cost,
                "summary": known.summary,
                "modes": list(known.modes),
            }
            for known in rules
        ],
    }
