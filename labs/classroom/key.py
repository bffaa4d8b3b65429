"""The class's key: it signs each result and gives each learner a seed of their own."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labs.grading.errors import UsageError

_BYTES = 32


class ClassKeyError(UsageError):
    """The key file cannot be used; the message says why."""


def read_key(path: Path) -> bytes:
    """The key in `path`; the file is created, readable by its owner alone, if there is none. Raises ClassKeyError."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(_BYTES) + "\n")
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise ClassKeyError(
            f"{path} is not a class's key: it has {2 * _BYTES} hexadecimal digits. Restore it from a copy."
        )
    return key


def sign(key: bytes, data: Mapping[str, Any]) -> str:
    """HMAC-SHA256 of the data's canonical JSON, in hexadecimal digits."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def seed_for(key: bytes, student: str, lab_id: str) -> int:
    """The seed of one learner's grades of one lab: the same each time, and unknown without the key."""
    return int(sign(key, {"student": student, "lab": lab_id})[:8], 16) >> 1
