"""Phrases for the messages of rules: names in backticks, lists, counted nouns and numbers. Does not import torch.

A name from the user's program (a module, parameter, batch key, function, operation, config key or file) is in
backticks, and so is any other code. The class names of optimizers, modules and loaders are not.
"""

from __future__ import annotations

from collections.abc import Iterable

NAMES = 3
"""The number of names in a list that is cut."""
_DIGITS = 3


def code(text: object) -> str:
    """A name or an expression of the user's program, in backticks."""
    return f"`{text}`"


def module_name(path: str | None) -> str:
    """The module with this dotted path. One whose name is a number is called a module.

    >>> module_name("vision.0"), module_name("0.wo"), module_name("")
    ('`vision.0`', 'module `0.wo`', 'the model')
    """
    return _named("module", path) if path else "the model"


def entry_name(path: str, alone: str = "the input") -> str:
    """The entry of a batch with this dotted path. One whose name is a number is called an entry.

    >>> entry_name("pixel_values"), entry_name("1"), entry_name("")
    ('`pixel_values`', 'entry `1`', 'the input')
    """
    return _named("entry", path) if path else alone


def function_text(name: str, does: str) -> str:
    """A function by its name, or by what it does if it has none.

    >>> function_text("decode", "decodes"), function_text("<lambda>", "decodes")
    ('`decode`', 'the lambda that decodes')
    """
    return f"the lambda that {does}" if name == "<lambda>" else code(name)


def listed(items: Iterable[object], most: int | None = None) -> str:
    """The items in one phrase. Items after the first `most` are only counted.

    >>> listed([0, 2, 5]), listed(["a", "b", "c", "d"], most=2)
    ('0, 2 and 5', 'a, b and 2 more')
    """
    shown = [str(item) for item in items]
    if most is not None and len(shown) > most:
        shown = [*shown[:most], f"{len(shown) - most} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def quoted(names: Iterable[object], most: int | None = NAMES) -> str:
    """The names in one phrase, each in backticks.

    >>> quoted(["head.weight", "head.bias"]), quoted("abcde")
    ('`head.weight` and `head.bias`', '`a`, `b`, `c` and 2 more')
    """
    return listed((code(name) for name in names), most)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "step"), counted(2000, "step"), counted(3, "batch", "batches")
    ('1 step', '2,000 steps', '3 batches')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """A noun with the numbers that it refers to.

    >>> numbered("rank", [1]), numbered("rank", [0, 2])
    ('rank 1', 'ranks 0 and 2')
    """
    shown = list(numbers)
    return f"{noun}{'' if len(shown) == 1 else 's'} {listed(shown)}"


def verb(number: int, singular: str, plural: str) -> str:
    """The form of a verb that agrees with a number: `verb(1, "is", "are")`."""
    return singular if number == 1 else plural


def amount(value: float, digits: int = _DIGITS) -> str:
    """A measured number. It has an exponent only above a million and below 0.0001.

    >>> amount(32768.0), amount(0.09713), amount(1e6, 1), amount(2.5e7), amount(1e-7)
    ('32,800', '0.0971', '1,000,000', '2.5e+07', '1e-07')
    """
    text = f"{value:.{digits}g}"
    return f"{float(text):,}".removesuffix(".0") if 1e3 <= abs(float(text)) <= 1e6 else text


def amounts_apart(first: float, second: float) -> tuple[str, str]:
    """Two measured numbers, with as many digits as it takes to tell them apart.

    >>> amounts_apart(9.006, 9.0), amounts_apart(2.3026, 2.3021)
    (('9.01', '9'), ('2.303', '2.302'))
    """
    for digits in range(_DIGITS, 7):
        shown = amount(first, digits), amount(second, digits)
        if shown[0] != shown[1]:
            break
    return shown


def sentence(text: str) -> str:
    """The text with a capital first letter. A name in backticks stays as it is."""
    return f"{text[:1].upper()}{text[1:]}"


def _named(kind: str, path: str) -> str:
    return f"{kind} {code(path)}" if path[0].isdigit() else code(path)
