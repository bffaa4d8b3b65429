"""The grader's side of one child: start it, ask it things, say what became of it, and be sure that it is gone."""

from __future__ import annotations

import codecs
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from labs.grading.errors import SandboxError, SubmissionDiedError, SubmissionRaisedError, TraceLine
from labs.grading.sandbox import frames, values
from labs.grading.sandbox.launch import Launcher
from labs.grading.sandbox.limits import LOST_PIPES, MEBIBYTE, Limits
from labs.grading.sandbox.transport import DeadlineError, EndedError, NonsenseError, Transport

_CLOSING_S = 30.0
_KEPT_TEXT = 32 * 1024


@dataclass(frozen=True)
class Job:
    """What a child is made of: the learner's files, and where the pristine ones are."""

    files: dict[str, str]
    shown_as: dict[str, str]
    """The path a traceback names for each file: the learner's own, not the sandbox's copy."""
    probe: str
    hidden: tuple[str, ...]
    limits: Limits

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the wire."""
        return {
            "files": self.files,
            "shown_as": self.shown_as,
            "probe": self.probe,
            "hidden": list(self.hidden),
            "limits": self.limits.to_json(),
        }


class Session:
    """One child, from its start to its certain end. Use it as a context manager."""

    def __init__(self, job: Job, launcher: Launcher, on_output: Callable[[str], None] | None = None) -> None:
        self._limits = job.limits
        self._printed = _Printed(job.limits.output_bytes, on_output)
        self._deadline = time.monotonic() + job.limits.start_s
        self._ready = False
        self.death: str | None = None
        """Why the child is gone, once it is: a sentence."""
        self._transport = Transport(launcher.launch(job.to_json()), job.limits.reply_bytes, self._printed.take)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._printed.closing = True
        self._transport.end(time.monotonic() + _CLOSING_S)

    @property
    def output(self) -> str:
        """What the submission printed: the beginning and the end of a long text."""
        return self._printed.text

    def load(self, seed: int) -> None:
        """Import the submission's files. The wall clock of the grade starts here, not with the grader's own imports."""
        self.ask("ready", "", seed=0)
        self._ready = True
        self._deadline = time.monotonic() + self._limits.wall_s
        self.ask("load", "", seed=seed)

    def ask(
        self,
        operation: str,
        name: str,
        arguments: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
        *,
        seed: int,
    ) -> Any:
        """One request and its answer.

        Raises SubmissionRaisedError if the submission's code raised, SubmissionDiedError once the child is gone,
        SandboxError if the sandbox itself failed.
        """
        if self.death is not None:
            raise SubmissionDiedError(self.death)
        nonce = secrets.token_hex(16)
        tree, payload = values.encode([list(arguments), keywords or {}])
        header = {"nonce": nonce, "operation": operation, "name": name, "arguments": tree, "seed": seed}
        reply, tensors = self._exchange(frames.pack(header, payload))
        if reply.get("nonce") != nonce:
            self._stop("it sent an answer that nobody had asked for")
        what = name or {"load": "importing your code"}.get(operation, operation)
        if "raised" in reply:
            raise self._raised(what, reply["raised"])
        try:
            return values.decode(reply.get("value"), tensors)
        except values.ValueFormatError as error:
            self._stop(f"its answer to {what} is not data ({error})")

    def _exchange(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        try:
            return self._transport.exchange(request, self._deadline)
        except EndedError as ended:
            self._died(ended.status)
        except DeadlineError:
            if not self._ready:
                raise SandboxError(f"The sandbox was not ready within {self._limits.start_s:.0f} s.") from None
            self._stop(f"it did not finish within {self._limits.wall_s:g} s")
        except NonsenseError as error:
            self._stop(f"it wrote nonsense where its answer was expected ({error})")
        except _FloodError:
            self._stop(f"it printed more than {self._limits.output_bytes // MEBIBYTE} MiB")

    def _raised(self, what: str, raised: Any) -> SubmissionRaisedError:
        try:
            trace = tuple(
                TraceLine(
                    _text(one["file"], 200), int(one["line"]), _text(one["function"], 200), _text(one["code"], 400)
                )
                for one in raised["trace"]
            )
            return SubmissionRaisedError(what, _text(raised["type"], 200), _text(raised["text"], 4000), trace)
        except Exception:  # whatever a forged one stumbles over, it is not what the sandbox would have sent
            self._stop(f"its answer to {what} is not data")

    def _died(self, status: dict[str, Any] | None) -> NoReturn:
        if status is None:
            # Once the learner's code is running, nothing else has a reason to kill the supervisor.
            self._no_word()
        if "fault" in status:
            raise SandboxError(f"The grader could not do its work: {status['fault']}.")
        if not self._ready:
            raise SandboxError(f"The sandbox could not start: {self.output.strip()[-800:] or status}")
        if "signal" in status:
            self.death = _killed_by(int(status["signal"]), self._limits)
        else:
            self.death = f"The submission ended its own process, with exit status {status['exit']}."
            if status["exit"] == LOST_PIPES:
                self.death = "The submission closed the descriptors that its answers travel on."
        raise SubmissionDiedError(self.death)

    def _no_word(self) -> NoReturn:
        if not self._ready:
            raise SandboxError(f"The sandbox could not start. {self.output.strip()[-800:]}")
        self._stop("its sandbox was killed from inside")

    def _stop(self, why: str) -> NoReturn:
        self.death = f"The submission was stopped: {why}."
        raise SubmissionDiedError(self.death)


def _text(value: Any, longest: int) -> str:
    """A text from the child as one that can be printed: a forged one may hold half a surrogate pair."""
    return str(value)[:longest].encode("utf-8", "replace").decode("utf-8")


def _killed_by(number: int, limits: Limits) -> str:
    if number == signal.SIGXCPU:
        return f"The submission was stopped: it used more than {limits.cpu_s} s of CPU."
    if number == signal.SIGXFSZ:
        return f"The submission was stopped: it wrote a file larger than {limits.file_mb} MiB."
    if number == signal.SIGKILL:
        return "The submission was killed (SIGKILL): most likely it used more memory or CPU time than there is."
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"The submission's process crashed ({name})."


class _FloodError(Exception):
    """More was printed than any debugging needs."""


class _Printed:
    """The submission's stdout and stderr: passed on as it comes, kept in part, stopped when it floods."""

    def __init__(self, most_bytes: int, on_output: Callable[[str], None] | None) -> None:
        self._most = most_bytes
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._seen = 0
        self._head = ""
        self._tail = ""
        self.closing = False

    def take(self, chunk: bytes) -> None:
        self._seen += len(chunk)
        if self._seen > self._most:
            if self.closing:
                return
            raise _FloodError
        text = self._decoder.decode(chunk)
        room = _KEPT_TEXT - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-_KEPT_TEXT:]
        if self._on_output is not None:
            self._on_output(text)

    @property
    def text(self) -> str:
        gap = "\n… (left out) …\n" if self._seen > 2 * _KEPT_TEXT else ""
        return self._head + gap + self._tail
