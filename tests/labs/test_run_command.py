"""`lab run`: the heading, the symptom and what to type next are one text, on one stream."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]


def test_heading_symptom_and_next_line_are_on_stdout_in_order(lab_command: Run) -> None:
    lab_command("start", "03")
    code, out, err = lab_command("run", "03")
    assert code == 0
    assert err == ""
    positions = [out.index(text) for text in ("03 · ", "there, back", "lab diagnose 03")]
    assert positions == sorted(positions)
