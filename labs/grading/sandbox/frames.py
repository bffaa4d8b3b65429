"""Length-prefixed frames on a descriptor: two sizes, a JSON header, a payload of raw bytes. Standard library only.

The header is parsed strictly, and `values` decodes the payload; nothing is ever unpickled. The blocking
functions are for the child and the supervisor; the grader reads frames piecemeal with `take`, under its one deadline.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

_SIZES = struct.Struct(">QQ")  # header bytes, payload bytes
LARGEST_HEADER = 16 * 1024 * 1024


class FrameError(Exception):
    """What arrived is not a frame; the message says why."""


def pack(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """One frame. Numbers in the header must be finite: NaN is not JSON."""
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode("ascii")
    return _SIZES.pack(len(text), len(payload)) + text + payload


def take(buffer: bytearray, largest_payload: int) -> tuple[dict[str, Any], bytes] | None:
    """Remove the first whole frame from the buffer; None while it is incomplete. Raises FrameError."""
    if len(buffer) < _SIZES.size:
        return None
    header_size, payload_size = _checked_sizes(bytes(buffer[: _SIZES.size]), largest_payload)
    end = _SIZES.size + header_size + payload_size
    if len(buffer) < end:
        return None
    text = bytes(buffer[_SIZES.size : _SIZES.size + header_size])
    payload = bytes(buffer[_SIZES.size + header_size : end])
    del buffer[:end]
    return _header(text), payload


def receive(descriptor: int, largest_payload: int) -> tuple[dict[str, Any], bytes] | None:
    """Block until a complete frame has arrived; None at the end of the stream. Raises FrameError."""
    sizes = _read(descriptor, _SIZES.size)
    if sizes is None:
        return None
    header_size, payload_size = _checked_sizes(sizes, largest_payload)
    text, payload = _read(descriptor, header_size), _read(descriptor, payload_size)
    if text is None or payload is None:
        return None
    return _header(text), payload


def send(descriptor: int, frame: bytes) -> None:
    """Block until the whole frame is written. Raises OSError."""
    view = memoryview(frame)
    while view:
        view = view[os.write(descriptor, view) :]


def _checked_sizes(data: bytes, largest_payload: int) -> tuple[int, int]:
    header_size, payload_size = _SIZES.unpack(data)
    if header_size > LARGEST_HEADER:
        raise FrameError(f"a header of {header_size} bytes was announced; {LARGEST_HEADER} is the most")
    if payload_size > largest_payload:
        raise FrameError(f"a payload of {payload_size} bytes was announced; {largest_payload} is the most")
    return header_size, payload_size


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError("the header is not an object")
    return header


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _read(descriptor: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
