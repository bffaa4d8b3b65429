"""Configuration files: values that are moved, entries that are left out, lists in another order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from labs.authoring.mutation.catalogue import operator
from labs.authoring.mutation.edit import Edit, summarise
from labs.authoring.mutation.yaml_source import YamlSource

_FLAGS = {"true": "false", "false": "true"}


@operator("move_value", "A number in a configuration is moved, a flag flipped.", language="yaml")
def move_value(source: YamlSource) -> Iterator[Edit]:
    for key, node in source.values():
        for text in _moved(node.value, node.tag):
            yield source.replace(key, node.start_mark.index, node.end_mark.index, text)


@operator("drop_entry", "An entry of a configuration is left out.", language="yaml")
def drop_entry(source: YamlSource) -> Iterator[Edit]:
    for key, start, end in source.entries():
        yield source.replace(key, *source.lines(start, end), "", f"{key}: (left out)")


@operator("drop_item", "A list in a configuration loses an item.", language="yaml")
def drop_item(source: YamlSource) -> Iterator[Edit]:
    for key, items in source.items():
        for start, end in items:
            summary = f"{key}: {summarise(source.text[start:end], '(left out)')}"
            yield source.replace(key, *source.lines(start, end), "", summary)


@operator("swap_items", "Two neighbouring items of a list in a configuration change places.", language="yaml")
def swap_items(source: YamlSource) -> Iterator[Edit]:
    for key, items in source.items():
        for (start, middle), (again, end) in pairwise(items):
            text = source.text[again:end] + source.text[middle:again] + source.text[start:middle]
            first, second = source.text[start:middle], source.text[again:end]
            yield source.replace(key, start, end, text, f"{key}: {first} and {second} change places")


def _moved(value: str, tag: str) -> tuple[str, ...]:
    if tag.endswith(":bool"):
        return tuple(other for one, other in _FLAGS.items() if one == value.lower())
    try:
        number = float(value)  # PyYAML takes 1e-3 for a text
    except ValueError:
        return ()
    if tag.endswith(":int"):
        return (str(int(value) + 1), str(int(value) - 1))
    return (f"{number * 2:g}", "0.0")
