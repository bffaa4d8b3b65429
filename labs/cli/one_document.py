"""`--json`: exactly one document on stdout, whatever else is printed.

While the command works, other output goes to stderr: that of this process, and of a child that inherited descriptor 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

Emit = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def one_document(wanted: bool) -> Iterator[Emit]:
    """Yield the function that takes the document, which is written when the block ends without an error."""
    held: list[dict[str, Any]] = []
    if not wanted:
        yield held.append
        return
    with _stdout_to_stderr():
        yield held.append
    for document in held[-1:]:
        sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
