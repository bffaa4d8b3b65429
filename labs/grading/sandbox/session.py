"""The grader's side of one child: start it, send requests, explain how it ended, and make sure that it is gone."""

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
from labs.grading.sandbox.launch import ColdLauncher, Launcher
from labs.grading.sandbox.limits import LOST_PIPES, MEBIBYTE, Limits, WallClock
from labs.grading.sandbox.transport import DeadlineError, EndedError, NonsenseError, Transport
from labs.grading.submission_text import OutputCleaner

_CLOSING_S = 30.0
_AT_WORK = {"load": "Importing your code", "symptom": "Reproducing the symptom", "diagnose": "The diagnosis"}
"""How a sentence names an operation that has no function of the learner's as its subject."""
_WHAT_TO_DO = "`lab doctor` checks what this machine offers; then repeat the command."
_KEPT_TEXT = 32 * 1024


@dataclass(frozen=True)
class Job:
    """What a child needs: the learner's files, and where the original ones are."""

    files: dict[str, str]
    shown_as: dict[str, str]
    """The path that a traceback shows for each file: the learner's own, not the sandbox's copy."""
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
    """One child, from its start to its end. Use it as a context manager; `load` starts the child."""

    def __init__(self, job: Job, launcher: Launcher, on_output: Callable[[str], None] | None = None) -> None:
        self._job = job
        self._limits = job.limits
        self._launcher = launcher
        self._on_output = on_output
        self._printed = _Printed(job.limits.output_bytes)
        self._transport: Transport | None = None
        self._clock = WallClock(job.limits.start_s)
        self._ready = False
        self.death: str | None = None
        """Why the child is gone, in one sentence; None while it is alive."""
        self.timed_out = False
        """Whether it is gone because its time was up."""

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def output(self) -> str:
        """What the submission printed, cleaned: the beginning and the end of a long text."""
        return self._printed.text

    def load(self, seed: int) -> None:
        """Start the child and import the submission's files. Raises what `request` raises.

        The wall clock of the grade starts with the submission's import; the grader's own imports do not count. A failed
        start is retried once, with a fresh interpreter: a fork server may have died, or the system may have been short
        of processes for a moment.
        """
        try:
            self._start(self._launcher)
        except SandboxError as first:
            self._end()
            self._printed = _Printed(self._limits.output_bytes)
            try:
                self._start(ColdLauncher())
            except SandboxError as second:
                raise SandboxError(_not_started(str(first), str(second))) from None
        self._ready = True
        self._printed.on_output = self._on_output  # what the start itself prints is not the submission's
        self._clock = WallClock(self._limits.wall_s)
        self.request("load", "", seed=seed)

    def _start(self, launcher: Launcher) -> None:
        self._clock = WallClock(self._limits.start_s)
        pipes = launcher.launch(self._job.to_json())
        self._transport = Transport(pipes, self._limits.reply_bytes, self._printed.take)
        self.request("ready", "", seed=0)

    def _end(self) -> None:
        self._printed.closing = True
        if self._transport is not None:
            self._transport.end(time.monotonic() + _CLOSING_S)
            self._transport = None

    def request(
        self,
        operation: str,
        name: str,
        arguments: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
        *,
        seed: int,
    ) -> Any:
        """Send one request and return its result.

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
            self._stop("it sent a reply that does not belong to any request")
        what = name or operation
        if "raised" in reply:
            raise self._raised(_AT_WORK.get(operation, what), reply["raised"])
        try:
            return values.decode(reply.get("value"), tensors)
        except values.ValueFormatError as error:
            self._stop(f"its reply to {what} is not data ({error})")

    def _exchange(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        assert self._transport is not None, "load() starts the child"
        try:
            with self._clock:
                return self._transport.exchange(request, self._clock.is_over)
        except EndedError as ended:
            self._died(ended.status)
        except DeadlineError:
            if not self._ready:
                raise SandboxError(f"it was not ready within {self._clock.limit_s:.0f} s") from None
            self.timed_out = True
            self.death = _time_out(f"it did not finish within {self._clock.limit_s:.3g} s")
            raise SubmissionDiedError(self.death) from None
        except NonsenseError as error:
            self._stop(f"what it sent is not a reply ({error})")
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
        except Exception:  # a forged reply may hold anything; the sandbox would not have sent this
            self._stop(f"its reply to {what} is not data")

    def _died(self, status: dict[str, Any] | None) -> NoReturn:
        if status is None:
            if self._ready:  # once the learner's code runs, nothing else has a reason to kill the supervisor
                self._stop("its sandbox was killed from inside")
            raise SandboxError(self._last_words() or "its supervisor ended without a report")
        if "fault" in status:
            fault = str(status["fault"])
            raise SandboxError(f"The sandbox failed: {fault}. {_WHAT_TO_DO}" if self._ready else fault)
        if not self._ready:
            ending = f"signal {status['signal']}" if "signal" in status else f"exit status {status['exit']}"
            raise SandboxError(self._last_words() or f"its process ended with {ending}")
        if "signal" in status:
            self.timed_out = status["signal"] == signal.SIGXCPU
            self.death = _killed_by(int(status["signal"]), self._limits)
        else:
            self.death = f"The submission ended its own process, with exit status {status['exit']}."
            if status["exit"] == LOST_PIPES:
                self.death = "The submission closed the file descriptors that its replies are sent on."
        raise SubmissionDiedError(self.death)

    def _last_words(self) -> str:
        """The last line that the starting process printed: what it raised."""
        lines = self.output.strip().splitlines()
        return lines[-1].rstrip(".") if lines else ""

    def _stop(self, why: str) -> NoReturn:
        self.death = f"The submission was stopped: {why}."
        raise SubmissionDiedError(self.death)


def _not_started(first: str, second: str) -> str:
    what = first if first == second else f"{first}; at the second attempt, {second}"
    return f"The sandbox for your code could not start, in two attempts: {what}. Your code did not run. " + _WHAT_TO_DO


def _time_out(what: str) -> str:
    return (
        f"The submission was stopped by the time limit, not because of a result: {what}. "
        "If your code is correct and this machine is slow or busy, set LAB_PATIENCE=4 for four times as long."
    )


def _text(value: Any, longest: int) -> str:
    """A text from the child, which may be forged: limited, and without the half of a surrogate pair."""
    return str(value)[:longest].encode("utf-8", "replace").decode("utf-8")


def _killed_by(number: int, limits: Limits) -> str:
    if number == signal.SIGXCPU:
        return _time_out(f"it used more than {limits.cpu_s} s of CPU time")
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
    """The submission printed more than `output_bytes`."""


class _Printed:
    """The submission's stdout and stderr: cleaned, passed on as they come, kept in part, and limited."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.on_output: Callable[[str], None] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._cleaner = OutputCleaner()
        self._seen = 0
        self._head = ""
        self._tail = ""
        self._left_out = False
        self.closing = False

    def take(self, chunk: bytes) -> None:
        self._seen += len(chunk)
        if self._seen > self._most:
            if self.closing:
                return
            raise _FloodError
        text = self._cleaner.feed(self._decoder.decode(chunk))
        room = _KEPT_TEXT - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        self._left_out = self._left_out or len(tail) > _KEPT_TEXT
        self._tail = tail[-_KEPT_TEXT:]
        if self.on_output is not None:
            self.on_output(text)

    @property
    def text(self) -> str:
        gap = "\n… (left out) …\n" if self._left_out else ""
        return self._head + gap + self._tail
