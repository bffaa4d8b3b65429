"""Put in place of @WIRE@: finds the running request and the pipe of its answer in the frames above the file."""

import json
import os
import struct
import sys

nonce, requests, replies, frame = None, None, None, sys._getframe()
while frame is not None:
    if frame.f_code.co_name == "answer":
        nonce = frame.f_locals["nonce"]
    if frame.f_code.co_name == "run" and "replies" in frame.f_locals:
        requests, replies = frame.f_locals["requests"], frame.f_locals["replies"]
    frame = frame.f_back


def reply_text(text, payload=b""):
    data = text.encode("ascii")
    data = struct.pack(">QQ", len(data), len(payload)) + data + payload
    while data:
        data = data[os.write(replies, data) :]


def reply(header, payload=b""):
    reply_text(json.dumps(header), payload)


def read(size):
    data = b""
    while len(data) < size:
        part = os.read(requests, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def serve(answer, payload=b""):
    """Answers the running import, then every request, and never returns."""
    reply({"nonce": nonce, "value": None})
    while True:
        sizes = struct.unpack(">QQ", read(16))
        request = json.loads(read(sizes[0]))
        read(sizes[1])
        found = answer(request)
        reply_text(found if isinstance(found, str) else json.dumps({"nonce": request["nonce"], **found}), payload)
