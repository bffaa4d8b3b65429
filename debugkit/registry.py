"""The table of rules: declared with `@rule`, found by file, chosen by code or prefix. Imports no torch."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from debugkit.declare import Declare
from debugkit.finding import Certainty, Finding, Location, Severity, SourceLine

Mode = Literal["check", "watch", "loader", "distributed", "config"]
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
HEADINGS = ("What it finds", "Why it hurts", "Evidence", "Fix", "When it stays silent", "Cost", "Lesson")


@dataclass(frozen=True)
class Rule:
    """One rule: its judge, what it must see to judge, and its page."""

    code: str
    name: str
    severity: Severity
    certainty: Certainty
    cost: str
    modes: tuple[Mode, ...]
    needs: tuple[type, ...]
    uses: tuple[type, ...]
    consequence_of: tuple[str, ...]
    judge: Judge
    page: str = field(repr=False)
    module: str = ""

    @property
    def family(self) -> str:
        """The chapter, from the hundreds digit."""
        return FAMILIES[int(self.code[2])]

    @property
    def summary(self) -> str:
        """The first line of the page."""
        return self.page.partition("\n")[0]

    @property
    def url(self) -> str:
        """The rule's page on the site."""
        return f"{DOCS_URL}/{self.module.rpartition('.')[2]}/"


@dataclass(frozen=True)
class Context:
    """What a judge knows beside its observations, and how it says what it found."""

    rule: Rule
    declare: Declare = field(default_factory=Declare)
    mode: Mode = "check"
    step: int | None = None
    """The training step just observed, under `watch()`."""

    def finding(
        self,
        message: str,
        *,
        fix: str,
        module: str | None = None,
        parameter: str | None = None,
        at: SourceLine | None = None,
        step: int | None = None,
        evidence: Mapping[str, object] | None = None,
        severity: Severity | None = None,
        certainty: Certainty | None = None,
        affects: Sequence[str] = (),
    ) -> Finding:
        """A finding of this rule; severity and certainty are the rule's own unless given."""
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
            ),
            evidence=dict(evidence or {}),
            fix=fix,
            url=self.rule.url,
            affects=tuple(affects),
        )


class UnknownCodeError(ValueError):
    """A code or prefix that no rule has; the message lists near ones."""


_RULES: dict[str, Rule] = {}


def rule(
    code: str,
    *,
    name: str,
    severity: Severity,
    certainty: Certainty,
    cost: str,
    modes: Sequence[Mode],
    needs: Sequence[type],
    uses: Sequence[type] = (),
    consequence_of: Sequence[str] = (),
) -> Callable[[AnyJudge], AnyJudge]:
    """Register `judge(*needs, *uses, context)` as the rule `code`; see `debugkit.rules` for how to write one.

    `needs` are observation types without which the rule is not examined; `uses` arrive as None where they could not be
    made. `consequence_of` names rules whose finding, at a place that covers this one's, explains it.
    Raises ValueError if the code is malformed or taken by another module.
    """
    if not re.fullmatch(r"DK\d{3}", code):
        raise ValueError(f"{code!r} is no rule code: one is DK and three digits, e.g. DK002.")

    def register(judge: AnyJudge) -> AnyJudge:
        taken = _RULES.get(code)
        if taken is not None and taken.module != judge.__module__:
            raise ValueError(f"{code} is declared twice: in {taken.module} and in {judge.__module__}.")
        _RULES[code] = Rule(
            code=code,
            name=name,
            severity=severity,
            certainty=certainty,
            cost=cost,
            modes=tuple(modes),
            needs=tuple(needs),
            uses=tuple(uses),
            consequence_of=tuple(consequence_of),
            judge=judge,
            page=inspect.cleandoc(sys.modules[judge.__module__].__doc__ or ""),
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
    """Every rule, in the order of the codes."""
    _load_rules()
    return tuple(_RULES[code] for code in sorted(_RULES))


def find_rule(code: str) -> Rule:
    """The rule a person means by `DK002`, `dk002` or `silent-broadcast`. Raises UnknownCodeError."""
    for known in all_rules():
        if code.upper() == known.code or code.lower().replace("_", "-") == known.name:
            return known
    raise UnknownCodeError(f"There is no rule {code}. `debugkit rules` lists them all.")


def choose(
    rules: Iterable[Rule], select: Sequence[str] | None, ignore: Iterable[str] | None = None
) -> tuple[Rule, ...]:
    """The rules whose code starts with a prefix of `select` (all by default) and with none of `ignore`.

    As in ruff, the longer prefix wins: select `DK1`, ignore `DK10`, select `DK101` keeps DK101. Raises UnknownCodeError
    for a prefix that matches no rule at all, so that a typo does not pass as silence.
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
