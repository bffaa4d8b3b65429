"""Half of a pair: a conversion without its inverse, or its inverse instead."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import called, positional, receiver

_PAIRS = (
    ("normalize", "unnormalize"),
    ("normalise", "unnormalise"),
    ("encode", "decode"),
    ("pack", "unpack"),
    ("squeeze", "unsqueeze"),
    ("log", "exp"),
    ("sqrt", "square"),
    ("state_dict", "load_state_dict"),
    ("save", "load"),
    ("save", "restore"),
    ("freeze", "unfreeze"),
    ("push", "pop"),
    ("quantize", "dequantize"),
    ("scale", "unscale_"),
)
_INVERSE = {two: one for one, two in reversed(_PAIRS)} | dict(reversed(_PAIRS))


@operator("drop_conversion", "One half of a pair is left out: the value passes unconverted.")
def drop_conversion(source: PythonSource) -> Iterator[Edit]:
    for call, _ in _halves(source):
        values = positional(call)
        inner = values[0] if values else receiver(call)
        if inner is not None:
            yield source.replace(call, source.operand(inner))


@operator("swap_pair", "One half of a pair is replaced by the other: unnormalise instead of normalise.")
def swap_pair(source: PythonSource) -> Iterator[Edit]:
    for call, inverse in _halves(source):
        name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
        yield source.replace(name, inverse, summarise(source.text_of(call), f"{inverse}(…)"))


def _halves(source: PythonSource) -> Iterator[tuple[cst.Call, str]]:
    for call in source.all(cst.Call):
        if called(call) in _INVERSE:
            yield call, _INVERSE[called(call)]
