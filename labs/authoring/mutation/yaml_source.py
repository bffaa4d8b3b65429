"""A parsed YAML file: its values and lists, where they are, and how an edit of one is made."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from labs.authoring.mutation.edit import Edit, summarise


class YamlSource:
    """One editable configuration file of a solution. `starter` is the text of the same file in the starter."""

    def __init__(self, file: str, text: str, starter: str = "") -> None:
        self.file = file
        self.text = text
        self.starter = starter
        self._root = yaml.compose(text, Loader=yaml.SafeLoader)

    def values(self) -> Iterator[tuple[str, yaml.ScalarNode]]:
        """Every value that is no mapping and no list, with its dotted key."""
        return ((key, node) for key, node in self._walk(self._root, "") if isinstance(node, yaml.ScalarNode))

    def items(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Every list of two items or more: its dotted key, and the characters of each item."""
        for key, node in self._walk(self._root, ""):
            if isinstance(node, yaml.SequenceNode) and len(node.value) > 1:
                yield key, [(item.start_mark.index, self._end(item)) for item in node.value]

    def entries(self) -> Iterator[tuple[str, int, int]]:
        """Every key beside another one: the dotted key, and the characters from the key to its value's end."""
        for path, node in self._walk(self._root, ""):
            if isinstance(node, yaml.MappingNode) and len(node.value) > 1:
                for key, value in node.value:
                    yield f"{path}.{key.value}".lstrip("."), key.start_mark.index, self._end(value)

    def lines(self, start: int, end: int) -> tuple[int, int]:
        """The characters of the whole lines that hold `start:end`: with the dash before and the comment behind."""
        after = self.text.find("\n", end)
        return self.text.rfind("\n", 0, start) + 1, len(self.text) if after < 0 else after + 1

    def replace(self, key: str, start: int, end: int, text: str, summary: str | None = None) -> Edit:
        """An edit that writes `text` in place of the characters `start:end`."""
        before = self.text[start:end]
        return Edit(
            start=len(self.text[:start].encode()),
            end=len(self.text[:end].encode()),
            text=text,
            line=self.text[:start].count("\n") + 1,
            scope=key,
            statement="",
            before=" ".join(before.split()),
            after=" ".join(text.split()),
            summary=summary or f"{key}: {summarise(before, text)}",
        )

    def _end(self, node: yaml.Node) -> int:
        """The character after a node's last one; PyYAML ends a block where the next one begins."""
        return node.start_mark.index + len(self.text[node.start_mark.index : node.end_mark.index].rstrip())

    def _walk(self, node: yaml.Node | None, path: str) -> Iterator[tuple[str, yaml.Node]]:
        if node is None:
            return
        yield path, node
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                yield from self._walk(value, f"{path}.{key.value}".lstrip("."))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                yield from self._walk(value, f"{path}.{index}".lstrip("."))
