"""Each operator makes the mutants of its example and no others, and leaves every other character as it was."""

from __future__ import annotations

import importlib.util
from itertools import takewhile
from pathlib import Path

import pytest

from labs.authoring.mutation.catalogue import UnknownOperatorError, all_operators, named
from labs.authoring.mutation.edit import Edit
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.yaml_source import YamlSource

_spec = importlib.util.spec_from_file_location("mutation_examples", Path(__file__).with_name("examples.py"))
assert _spec is not None
assert _spec.loader is not None
examples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(examples)


def new_lines(source: str, edit: Edit) -> str:
    """The lines of the mutant between those that it shares with the source at the beginning and at the end."""
    before, after = source.splitlines(), edit.apply(source).splitlines()
    first = _alike(before, after)
    last = _alike(before[first:][::-1], after[first:][::-1])
    return "\n".join(after[first : len(after) - last])


@pytest.mark.parametrize("example", examples.EXAMPLES, ids=lambda one: one.operator)
def test_an_operator_makes_these_mutants_and_keeps_the_rest(example) -> None:
    source = PythonSource("policy.py", example.source, example.starter)
    edits = list(named(example.operator).make(source))
    assert [new_lines(example.source, edit) for edit in edits] == example.mutants
    for edit in edits:
        compile(edit.apply(example.source), "policy.py", "exec")


@pytest.mark.parametrize("example", examples.YAML_EXAMPLES, ids=lambda one: one.operator)
def test_an_operator_changes_a_configuration_like_this(example) -> None:
    edits = list(named(example.operator).make(YamlSource("config.yaml", example.source)))
    assert [new_lines(example.source, edit) for edit in edits] == example.mutants


def test_every_operator_has_an_example_and_a_sentence() -> None:
    shown = {one.operator for one in (*examples.EXAMPLES, *examples.YAML_EXAMPLES)}
    assert {one.name for one in all_operators()} == shown
    assert all(one.sentence.endswith(".") for one in all_operators())


def test_an_unknown_operator_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownOperatorError, match="drop_detach"):
        named("drop_everything")


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines both begin with."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
