"""Korean particles after a value: `{name}을(를)` becomes 을 or 를 by the sound that the value ends with."""

from __future__ import annotations

import re

_PARTICLES = {
    "을(를)": ("을", "를"),
    "이(가)": ("이", "가"),
    "은(는)": ("은", "는"),
    "과(와)": ("과", "와"),
    "(으)로": ("으로", "로"),
    "(이)라": ("이라", "라"),
    "(이)나": ("이나", "나"),
}
_FORM = re.compile(
    r"(?P<before>\w)(?P<closing>[`'\")\]*]*)(?P<form>" + "|".join(map(re.escape, _PARTICLES)) + ")",
)
_DIGITS_WITH_A_FINAL = "013678"
_LETTERS_WITH_A_FINAL = "lmnLMN"
_RIEUL = "178lL"
"""Endings with the consonant ㄹ, after which 으로 is 로."""


def with_particles(text: str) -> str:
    """The text with each double form, such as 을(를), replaced by the one that fits."""
    return _FORM.sub(_chosen, text) if "(" in text else text


def _chosen(found: re.Match[str]) -> str:
    before, form = found["before"], found["form"]
    final = _has_final(before)
    if form == "(으)로" and _is_rieul(before):
        final = False
    return f"{before}{found['closing']}{_PARTICLES[form][0 if final else 1]}"


def _has_final(letter: str) -> bool:
    if "가" <= letter <= "힣":
        return (ord(letter) - ord("가")) % 28 != 0
    return letter in _DIGITS_WITH_A_FINAL or letter in _LETTERS_WITH_A_FINAL


def _is_rieul(letter: str) -> bool:
    if "가" <= letter <= "힣":
        return (ord(letter) - ord("가")) % 28 == 8
    return letter in _RIEUL
