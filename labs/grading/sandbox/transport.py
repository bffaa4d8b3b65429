"""Moves bytes between the grader and one child, with one deadline, whatever the child does.

Reads and writes are multiplexed by hand, because a submission may at any moment print without end, ignore its request,
send half a frame, or die.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from typing import Any

from labs.grading.sandbox import frames
from labs.grading.sandbox.launch import Pipes

_CHUNK = 1 << 18
_LONGEST_WAIT_S = 0.5


class EndedError(Exception):
    """The child is gone; `status` is its supervisor's report, or None."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        super().__init__()
        self.status = status


class DeadlineError(Exception):
    """The time was up before a complete reply arrived."""


class NonsenseError(Exception):
    """What arrived is not exactly one reply; the message says what is wrong with it."""


class Transport:
    """One child's five pipes."""

    def __init__(self, pipes: Pipes, largest_reply: int, take_output: Callable[[bytes], None]) -> None:
        self._pipes = pipes
        self._largest_reply = largest_reply
        self._take_output = take_output
        self._replies = bytearray()
        self._statuses = bytearray()
        self._selector = selectors.DefaultSelector()
        for descriptor in (pipes.replies, pipes.status, pipes.output):
            self._selector.register(descriptor, selectors.EVENT_READ)

    def exchange(self, request: bytes, over: Callable[[], bool]) -> tuple[dict[str, Any], bytes]:
        """Send one frame and receive one; `over` says, twice a second or more often, whether the time is up.

        Raises EndedError, DeadlineError, NonsenseError, and whatever `take_output` raises.
        """
        pending = memoryview(request)
        self._selector.register(self._pipes.requests, selectors.EVENT_WRITE)
        try:
            while True:
                pending = self._pump(pending)
                if not pending:
                    self._stop_writing()
                reply = self._reply()
                if reply is not None:
                    return reply
                if self._supervisor_gone():
                    raise EndedError(self._status())
                if over():
                    raise DeadlineError
        finally:
            self._stop_writing()

    def end(self, deadline: float) -> None:
        """Kill the child and wait until its supervisor has cleaned up."""
        self._pipes.end()
        while not self._supervisor_gone() and time.monotonic() < deadline:
            self._pump(memoryview(b""))
            self._replies.clear()  # later replies are ignored
        self._selector.close()
        self._pipes.close()

    def _pump(self, pending: memoryview) -> memoryview:
        """Wait until data can be moved, and move it. Returns what is left to write."""
        for key, _ in self._selector.select(_LONGEST_WAIT_S):
            if key.fd == self._pipes.requests:
                pending = self._write(pending)
                continue
            chunk = os.read(key.fd, _CHUNK)
            if not chunk:
                self._selector.unregister(key.fd)
            elif key.fd == self._pipes.output:
                self._take_output(chunk)
            elif key.fd == self._pipes.status:
                self._statuses += chunk
            else:
                self._replies += chunk
        return pending

    def _write(self, pending: memoryview) -> memoryview:
        try:
            return pending[os.write(self._pipes.requests, pending[:_CHUNK]) :]
        except BlockingIOError:
            return pending
        except OSError:  # the reader is gone; the supervisor's status will say why
            self._stop_writing()
            return pending

    def _stop_writing(self) -> None:
        if self._pipes.requests in self._selector.get_map():
            self._selector.unregister(self._pipes.requests)

    def _reply(self) -> tuple[dict[str, Any], bytes] | None:
        try:
            reply = frames.take(self._replies, self._largest_reply)
        except frames.FrameError as error:
            raise NonsenseError(str(error)) from None
        if reply is not None and self._replies:
            raise NonsenseError("more than one reply arrived")
        return reply

    def _supervisor_gone(self) -> bool:
        return self._pipes.status not in self._selector.get_map()

    def _status(self) -> dict[str, Any] | None:
        try:
            found = frames.take(self._statuses, 0)
        except frames.FrameError:
            return None
        return found[0] if found else None
