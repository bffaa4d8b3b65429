"""The canonical form of a file: what remains of it without comments, docstrings and layout.

Two versions of a file with the same canonical form do the same, so a content hash made from it does not change when
prose is reworded. The form of Python is the same on every supported Python version, unlike `ast.dump`.
"""

from __future__ import annotations

import ast
import hashlib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any

import yaml

Prose = Mapping[str, Collection[str]]
"""For each function name, the keyword arguments of its calls that are sentences for a reader and do not count."""


def canonical_form(name: str, content: bytes, prose: Prose | None = None) -> str:
    """The canonical form of the file called `name`; a digest of its bytes if its kind is unknown or it is malformed."""
    try:
        match PurePath(name).suffix:
            case ".py":
                return python_form(content.decode("utf-8"), prose or {})
            case ".yaml" | ".yml":
                return _yaml_form(content.decode("utf-8"))
            case ".toml":
                return repr(tomllib.loads(content.decode("utf-8")))
            case ".ini":
                return repr([line for line in content.decode("utf-8").split("\n") if line and line[0] not in "#;"])
    except (SyntaxError, ValueError, yaml.YAMLError):
        pass
    return hashlib.sha256(content).hexdigest()


def python_form(source: str, prose: Prose) -> str:
    """The syntax tree without positions, docstrings and other bare strings, and `prose`. Raises SyntaxError."""
    return repr(_form(ast.parse(source), prose))


def _form(value: Any, prose: Prose) -> Any:
    if isinstance(value, list):
        return [_form(item, prose) for item in value if not _is_bare_string(item)]
    if not isinstance(value, ast.AST):
        return value
    fields = dict(ast.iter_fields(value))
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in prose:
        fields["keywords"] = [word for word in value.keywords if word.arg not in prose[value.func.id]]
    if isinstance(value, ast.JoinedStr):  # Python 3.12 ends some with an empty text
        fields["values"] = [part for part in value.values if not (isinstance(part, ast.Constant) and part.value == "")]
    # Fields that a Python version added are empty in code that does not use them.
    kept = {name: _form(item, prose) for name, item in fields.items() if item is not None and item != []}
    kept.pop("kind", None)  # u"text" is "text"
    return type(value).__name__, kept


def _is_bare_string(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _yaml_form(text: str) -> str:
    # Hydra reads one kind of comment: `# @package _global_`.
    directives = [line for line in text.split("\n") if line.startswith("# @")]
    return repr((directives, list(yaml.safe_load_all(text))))
