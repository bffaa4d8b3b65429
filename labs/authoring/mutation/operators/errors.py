"""What is raised, and what is caught."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource


@operator("change_error", "Another type of error is raised.")
def change_error(source: PythonSource) -> Iterator[Edit]:
    for statement in source.all(cst.Raise):
        raised = statement.exc.func if isinstance(statement.exc, cst.Call) else statement.exc
        if raised is not None:
            other = "ValueError" if source.text_of(raised) == "RuntimeError" else "RuntimeError"
            yield source.replace(raised, other)


@operator("widen_except", "`except` catches every error.")
def widen_except(source: PythonSource) -> Iterator[Edit]:
    for handler in source.all(cst.ExceptHandler):
        if handler.type is not None and source.text_of(handler.type) not in ("Exception", "BaseException"):
            yield source.replace(handler.type, "Exception")


@operator("drop_except", "An error that was caught passes.")
def drop_except(source: PythonSource) -> Iterator[Edit]:
    for handler in source.all(cst.ExceptHandler):
        if handler.type is not None:
            caught = f"except {source.text_of(handler.type)}"
            yield source.replace(handler.type, "()", summarise(caught, "(not caught)"))
