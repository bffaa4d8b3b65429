"""Masks and clamps that are left out, emptied, filled or added."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.operators.gradients import computed_tensors
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.syntax import called, positional, receiver

_CLAMPS = ("clamp", "clamp_min", "clamp_max", "clip", "clamp_", "nan_to_num", "relu")
_MASK_WORDS = ("mask", "is_pad", "padding")


@operator("drop_mask", "A mask is left out: `masked_fill`, `where`, or a tensor indexed by a mask.")
def drop_mask(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        inner = receiver(call)
        if called(call) in ("masked_fill", "masked_fill_", "masked_select") and inner is not None:
            yield source.replace(call, source.operand(inner))
        if called(call) == "where" and inner is None and len(positional(call)) == 3:
            for kept in positional(call)[1:]:
                yield source.replace(call, source.operand(kept))
    for subscript in source.all(cst.Subscript):
        if len(subscript.slice) == 1 and _names_a_mask(source.text_of(subscript.slice[0])):
            yield source.replace(subscript, source.operand(subscript.value))


@operator("constant_mask", "A mask that is handed on covers nothing, or everything.")
def constant_mask(source: PythonSource) -> Iterator[Edit]:
    if "import torch\n" not in source.text:
        return
    for argument in source.all(cst.Arg):
        if isinstance(argument.value, cst.Name) and _names_a_mask(argument.value.value):
            for like in ("zeros_like", "ones_like"):
                text = f"torch.{like}({argument.value.value})"
                summary = f"{called(source.parent(argument))}: {summarise(source.text_of(argument), text)}"
                yield source.replace(argument.value, text, summary)


@operator("drop_clamp", "A clamp is left out.")
def drop_clamp(source: PythonSource) -> Iterator[Edit]:
    for call in source.all(cst.Call):
        if called(call) in _CLAMPS:
            inner = receiver(call) or next(iter(positional(call)), None)
            if inner is not None:
                yield source.replace(call, source.operand(inner))


@operator("add_clamp", "A tensor that is returned is clamped to −1 … 1.")
def add_clamp(source: PythonSource) -> Iterator[Edit]:
    for value, tensors in computed_tensors(source):
        if isinstance(source.parent(value), cst.Return) and not tensors.is_data(value):
            text = f"({source.text_of(value)}).clamp(-1.0, 1.0)"
            yield source.replace(value, text, summarise(source.text_of(value), text))


def _names_a_mask(text: str) -> bool:
    return any(word in text for word in _MASK_WORDS)
