"""Single keys from the terminal, without Enter. Ctrl-C and Ctrl-Z work as always."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def on_key(pressed: Callable[[str], object]) -> Iterator[bool]:
    """Inside the block, call `pressed` with each key, from another thread; yields False where there is no keyboard.

    The terminal's settings are restored at the end.
    """
    terminal = _terminal()
    if terminal is None:
        yield False
        return
    before = termios.tcgetattr(terminal)
    reading, writing = os.pipe()
    keys = threading.Thread(target=_read, args=(terminal, reading, pressed), daemon=True)
    try:
        _one_key_at_a_time(terminal)
        keys.start()
        yield True
    finally:
        os.close(writing)
        keys.join()
        os.close(reading)
        if _is_ours(terminal):
            with contextlib.suppress(termios.error):
                termios.tcsetattr(terminal, termios.TCSANOW, before)


_LOOK_AGAIN_S = 0.5
_LOCAL_MODES = 3
"""The index in what tcgetattr returns."""
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")
"""What an arrow or a function key sends."""


def _terminal() -> int | None:
    """Standard input, if it is our terminal."""
    try:
        terminal = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):  # closed, or replaced by something that is no file
        return None
    return terminal if os.isatty(terminal) and _is_ours(terminal) else None


def _is_ours(terminal: int) -> bool:
    """Whether this process is in the terminal's foreground; one in the background is stopped when it changes it."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # the terminal is gone
        return False


def _one_key_at_a_time(terminal: int) -> None:
    """Set it, if it is not: a shell restores its own settings when this process is stopped (Ctrl-Z)."""
    with contextlib.suppress(termios.error):
        if _is_ours(terminal) and termios.tcgetattr(terminal)[_LOCAL_MODES] & termios.ICANON:
            tty.setcbreak(terminal, termios.TCSANOW)


def _read(terminal: int, stop: int, pressed: Callable[[str], object]) -> None:
    while True:
        watched = [stop, terminal] if _is_ours(terminal) else [stop]  # reading in the background would stop us
        ready, _, _ = select.select(watched, [], [], _LOOK_AGAIN_S)
        if stop in ready:
            return
        _one_key_at_a_time(terminal)
        if not ready:
            continue
        try:
            typed = os.read(terminal, 64)
        except OSError:
            return
        if not typed:
            return
        for key in _SEQUENCE.sub("", typed.decode("utf-8", "ignore")):
            pressed(key)
