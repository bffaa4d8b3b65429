"""`--json` owns stdout: whatever prints meanwhile, through Python or past it, goes to stderr."""

from __future__ import annotations

import json
import os

import pytest

from labs.cli.one_document import one_document


def test_stray_output_goes_to_stderr_and_the_document_alone_to_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with one_document(True) as emit:
        print("stray")  # noqa: T201
        os.write(1, b"past python\n")
        emit({"schema": 1, "word": "über"})
    captured = capfd.readouterr()
    assert json.loads(captured.out) == {"schema": 1, "word": "über"}
    assert captured.out.count("\n") == 1
    assert "stray" in captured.err
    assert "past python" in captured.err


def test_an_error_prints_no_document_and_gives_stdout_back(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with one_document(True) as emit:
            emit({"schema": 1})
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    print("free again")  # noqa: T201
    assert capfd.readouterr().out == "free again\n"


def test_without_json_nothing_is_held_back(capfd: pytest.CaptureFixture[str]) -> None:
    with one_document(False) as emit:
        print("as text")  # noqa: T201
        emit({"schema": 1})
    assert capfd.readouterr().out == "as text\n"
