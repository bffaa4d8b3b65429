"""The verdicts of a run of `lab dev mutate` that has not ended yet: the next run continues with them.

One line of JSON for each verdict, in `build/mutants`, in a file whose name depends on all that decides a verdict. A
line that was cut off is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from importlib.metadata import version

from labs.authoring.bench import Refusal, Verdict
from labs.authoring.content_hash import decided_by
from labs.grading.catalog import Lab


class Journal:
    """The verdicts so far of one lab's mutants; several processes may add to it at once. Raises OSError."""

    def __init__(self, lab: Lab, *, names: bool) -> None:
        decided = f"{decided_by(lab)} {lab.seeds} {names} {version('torch')}"
        name = f"{lab.id}-{hashlib.sha256(decided.encode()).hexdigest()[:12]}.jsonl"
        self._file = lab.solution.parents[1] / "build" / "mutants" / name

    def verdicts(self, step: str) -> dict[str, Verdict]:
        """The verdicts of a step of the run, by mutant."""
        found = {}
        for line in self._lines():
            entry = json.loads(line)
            if entry["step"] == step:
                refusal = entry["refusal"] and Refusal(**entry["refusal"])
                found[entry["mutant"]] = Verdict(refusal, entry["child_cpu_s"], entry["grader_cpu_s"], entry["named"])
        return found

    def add(self, step: str, mutant: str, verdict: Verdict) -> None:
        """Add a verdict, in one write; it begins with a line end, after what another one may have left.

        A failure of the grader is no verdict on the mutant: the next run grades it again.
        """
        if verdict.refusal is not None and verdict.refusal.by_grader:
            return
        line = "\n" + json.dumps({"step": step, "mutant": mutant, **asdict(verdict)}) + "\n"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """The run has ended: the next one starts from the beginning."""
        self._file.unlink(missing_ok=True)

    def _lines(self) -> list[str]:
        try:
            text = self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines(keepends=True) if line.endswith("}\n")]
