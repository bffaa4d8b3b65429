"""Which mutants a lab has: none twice, none that is the solution or the starter, none of text for readers."""

from __future__ import annotations

import libcst as cst
import pytest

from labs.authoring.mutation import mutants as module
from labs.authoring.mutation.catalogue import Operator
from labs.authoring.mutation.mutants import mutants_of, read
from labs.authoring.mutation.normal_form import normal_form
from labs.authoring.mutation.python_source import PythonSource
from labs.grading.catalog import Lab

UNREAD = '''"""Module, 1."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Step = Callable[[int, float], None]
__all__ = ["f", "g"]


class A:
    size: list[int]
    """Two sizes, 3."""


def f(x: dict[str, int] | None) -> tuple[int, ...]:
    """Returns 4 - 1."""
    print(x["a"] + 1, end="")
    logging.info("%d", 1 + 2)


if __name__ == "__main__":
    f({"a": 1})
'''


def of_one_file(lab: Lab, starter: str, solution: str) -> list[str]:
    (lab.folder / "policy.py").write_text(starter)
    (lab.solution / "policy.py").write_text(solution)
    return [one.files["policy.py"] for one in mutants_of(lab)]


def test_types_imports_documentation_and_logs_are_not_changed(lab: Lab) -> None:
    assert of_one_file(lab, "x = 1\n", UNREAD) == []


def test_an_error_message_is_not_changed_but_its_type_is(lab: Lab) -> None:
    made = of_one_file(lab, "x = 1\n", 'def f(x):\n    raise ValueError("at most" + str(1 + 2))\n')
    assert made == ['def f(x):\n    raise RuntimeError("at most" + str(1 + 2))\n']


def test_no_two_mutants_are_the_same_program_and_none_is_the_solution(lab: Lab) -> None:
    solution = "def f(x, y):\n    if x:\n        return x + y\n    return y\n"
    made = of_one_file(lab, "x = 1\n", solution)
    forms = [normal_form(text) for text in made]
    assert len(set(forms)) == len(forms) > 5
    assert normal_form(solution) not in forms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f():\n    g()\n    pass\n", 'def f():\n    """Doc."""\n    g()  # why\n'),
        ("if True:\n    g()\n", "g()\n"),
        ("x = (1)\n", "x = 1\n"),
    ],
)
def test_programs_that_differ_in_nothing_that_runs_have_one_form(one: str, other: str) -> None:
    assert normal_form(one) == normal_form(other) != normal_form("h()\n")


def test_the_starter_is_no_mutant(lab: Lab) -> None:
    starter, solution = "def f(x):\n    return x\n", "def f(x):\n    return x.detach()\n"
    assert starter not in of_one_file(lab, starter, solution)
    assert starter in of_one_file(lab, "x = 1\n", solution)


def test_a_fix_in_two_places_is_made_in_each_alone(lab: Lab) -> None:
    starter, solution = "A = f(a)\nB = 1\nC = f(c)\n", "A = g(a)\nB = 1\nC = g(c)\n"
    made = of_one_file(lab, starter, solution)
    assert made[:2] == ["A = g(a)\nB = 1\nC = f(c)\n", "A = f(a)\nB = 1\nC = g(c)\n"]


def test_a_fix_in_three_places_also_lacks_each_once(lab: Lab) -> None:
    starter, solution = "A = f\nx = 1\nB = f\ny = 1\nC = f\n", "A = g\nx = 1\nB = g\ny = 1\nC = g\n"
    made = of_one_file(lab, starter, solution)[:6]
    assert sorted(text.count("g") for text in made) == [1, 1, 1, 2, 2, 2]


def test_a_hunk_that_does_not_parse_alone_is_left_out(lab: Lab) -> None:
    starter = "def f(x):\n    if x:\n        g(x)\n    h(x)\n"
    solution = "def f(x):\n    try:\n        g(x)\n    except E:\n        i(x)\n    h(x)\n"
    assert of_one_file(lab, starter, solution)
    # `if` with `except`, and `try` without it: no program.
    assert [one.summary for one in mutants_of(lab) if one.operator == "one_hunk"] == []


def test_an_operator_that_makes_nonsense_is_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: PythonSource):
        yield source.replace(next(source.all(cst.Return)), "def (")

    monkeypatch.setattr(module, "all_operators", lambda: (Operator("broken", "Nonsense.", broken),))
    with pytest.raises(ValueError, match=r"broken made policy\.py unreadable"):
        mutants_of(lab)


def test_every_mutant_of_the_fixture_lab_differs_from_its_solution(lab: Lab) -> None:
    solution = read(lab, lab.solution)
    mutants = mutants_of(lab)
    assert len(mutants) > 20
    for mutant in mutants:
        assert mutant.files != solution
        assert mutant.file == "policy.py"
        assert 1 <= mutant.line <= len(solution["policy.py"].splitlines())
