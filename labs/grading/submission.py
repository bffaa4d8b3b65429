"""`submission`: a check's handle to the learner's code. All that it returns is kept as evidence for the recognisers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labs.grading.errors import CheckError, SubmissionDiedError
from labs.grading.rng import derive
from labs.grading.sandbox.session import Session

_RESERVED = ("subject", "symptom")


class Submission:
    """A remote handle to the sandboxed child. The first request starts the child."""

    def __init__(self, open_session: Callable[[], Session], load_seed: int, probes: frozenset[str]) -> None:
        self._open_session = open_session
        self._load_seed = load_seed
        self._probes = probes
        self._session: Session | None = None
        self._check = ""
        self._seed = 0
        self._count = 0
        self.measured = False
        """Whether the running check has received a result yet."""
        self.evidence: dict[str, Any] = {}
        self.load_error: Exception | None = None

    def call(self, function: str, *arguments: Any, **keywords: Any) -> Any:
        """Run a function of the learner's file: `call("gripper_loss", prediction, target)`.

        A dotted name reaches into a class or another editable file. Tensors are returned contiguous, on the CPU and
        without a graph; `labs.grading.facts(tensor)` has their original properties. Raises SubmissionRaisedError,
        SubmissionDiedError.
        """
        return self._request("call", function, arguments, keywords)

    def observe(self, probe: str, **keywords: Any) -> Any:
        """Run one of the lab's probes beside the learner's code, and return its plain data and tensors."""
        if probe not in self._probes:
            there = ", ".join(sorted(self._probes)) or "none"
            raise CheckError(f"probe.py has no probe named {probe}. There are: {there}.")
        return self._request("observe", probe, (), keywords)

    def begin(self, check: str, seed: int) -> None:
        """Start a check: its requests get their own seeds, independent of earlier checks."""
        self._check, self._seed, self._count, self.measured = check, seed, 0, False

    @property
    def death(self) -> str | None:
        """Why the child is gone, as a sentence; None while it is alive."""
        return self._session.death if self._session is not None else None

    @property
    def timed_out(self) -> bool:
        """Whether the child is gone because its time was up."""
        return self._session is not None and self._session.timed_out

    @property
    def ending(self) -> str | None:
        """Why the submission could not be graded completely: it died, or could not be imported."""
        return self.death or (str(self.load_error) if self.load_error is not None else None)

    @property
    def output(self) -> str:
        """What the submission printed, cleaned."""
        return self._session.output if self._session is not None else ""

    def close(self) -> None:
        """End the child and everything that it started."""
        if self._session is not None:
            self._session.__exit__(None, None, None)

    def start(self) -> None:
        """Start the child and import the learner's files. If that raised once, it raises the same every time."""
        if self.load_error is not None:
            raise self.load_error
        if self._session is None:
            self._session = self._open_session()
            try:
                self._session.load(self._load_seed)
            except Exception as error:
                self.load_error = error
                raise

    def _request(self, operation: str, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        self.start()
        assert self._session is not None
        self._count += 1
        seed = derive(self._seed, self._count)
        try:
            value = self._session.request(operation, name, arguments, keywords, seed=seed)
        except SubmissionDiedError as error:
            self.evidence[f"{self._check}/{name}"] = self.evidence[name] = {"died": str(error)}
            raise
        finally:
            self.measured = True
        self.evidence[name] = value
        self.evidence[f"{self._check}/{name}"] = value
        return value


def probes_in(path: Path) -> frozenset[str]:
    """The names of a probe.py's public functions, read without running it. Raises CheckError."""
    if not path.exists():
        return frozenset()
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise CheckError(f"{path} does not parse: {error}.") from None
    names = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in names if not name.startswith("_") and name not in _RESERVED)
