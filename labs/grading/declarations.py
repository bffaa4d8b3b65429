"""`@check` and `@wrong_fix`: what a lab's checks.py declares.

Both only describe and register; nothing runs. The registry is keyed by module and tells the grader which checks must
run, so a misnamed or shadowed check is an error and not silently missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast, get_args

from labs.grading.errors import CheckError

Kind = Literal["behaviour", "invariant", "outcome"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STRUCTURAL: tuple[Kind, ...] = ("behaviour", "invariant")
"""The kinds that train nothing, and are cheap."""
"""In the order they run: cheap and structural first, training and rollouts last."""

Evidence = Mapping[str, Any]
Recogniser = Callable[[Evidence], bool | str]
_F = TypeVar("_F", bound=Callable[..., None])


@dataclass(frozen=True)
class Check:
    """One declared check. `id` is its function's name."""

    id: str
    kind: Kind
    title: str
    property: str
    instrument: str
    module: str


@dataclass(frozen=True)
class WrongFix:
    """A plausible wrong fix and the pure function that recognises it from measured data."""

    name: str
    says: str
    recognise: Recogniser

    def sentence(self, evidence: Evidence) -> str | None:
        """The sentence for the learner if they made this wrong fix, else None.

        Data of an unexpected shape means that it is not this wrong fix.
        """
        try:
            answer = self.recognise(evidence)
        except Exception:
            return None
        if isinstance(answer, str):
            return answer or None
        return self.says if answer is True else None


@dataclass(frozen=True)
class Declared:
    """Everything that one checks.py declares, in order."""

    checks: tuple[Check, ...]
    wrong_fixes: tuple[WrongFix, ...]

    def recognise(self, evidence: Evidence) -> tuple[WrongFix, str] | None:
        """The first wrong fix that the measured data shows, with its sentence."""
        for wrong in self.wrong_fixes:
            sentence = wrong.sentence(evidence)
            if sentence is not None:
                return wrong, sentence
        return None


_checks: dict[str, list[Check]] = {}
_wrong_fixes: dict[str, list[WrongFix]] = {}


def check(*, kind: Kind, title: str, property: str, instrument: str) -> Callable[[_F], _F]:
    """Declare a pytest function as a check.

    `title` is shown beside the check mark. `property` is a sentence that must hold for any correct fix. `instrument` is
    the debugkit call to use next, which runs as printed.
    """
    for name, value in (("title", title), ("property", property), ("instrument", instrument)):
        if not isinstance(value, str) or not value.strip():
            raise CheckError(f"@check needs a non-empty {name}.")
    if kind not in KINDS:
        raise CheckError(f"@check(kind={kind!r}): the kind is one of {', '.join(KINDS)}.")

    def declare(function: _F) -> _F:
        declared = Check(function.__name__, kind, title, property, instrument, function.__module__)
        _checks.setdefault(function.__module__, []).append(declared)
        cast(Any, function).__lab_check__ = declared
        return function

    return declare


def wrong_fix(name: str, *, says: str) -> Callable[[Recogniser], Recogniser]:
    """Declare a recogniser of a wrong fix: a pure function of the measured data.

    `evidence` maps `"observation"` and `"check_id/observation"` to what that call or probe returned last, and
    `"check_id"` to `{"outcome", "measured", "expected"}`. The function returns True, or a sentence with the
    measured numbers in it instead of `says`.
    """

    def declare(function: Recogniser) -> Recogniser:
        _wrong_fixes.setdefault(function.__module__, []).append(WrongFix(name, says, function))
        return function

    return declare


def declared_in(module: str) -> Declared:
    """What the module of that name declared. Raises CheckError if two checks have the same name."""
    checks = _checks.get(module, [])
    names = [one.id for one in checks]
    for name in names:
        if names.count(name) > 1:
            raise CheckError(f"{module} declares two checks named {name}: only the second would run.")
    return Declared(tuple(checks), tuple(_wrong_fixes.get(module, [])))


def forget(module: str) -> None:
    """Drop what a module declared, before it is imported again."""
    _checks.pop(module, None)
    _wrong_fixes.pop(module, None)
