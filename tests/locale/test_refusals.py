"""Whatever a lab measures, a refusal about it is in Korean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import labs
from labs.grading.comparison import compare
from labs.locale import placeholders_of, translated
from labs.locale.python_strings import called
from labs.locale.sources import SHARED
from placed_words import placed_words

ROOT = Path(labs.__file__).parent
FILES = [*sorted(ROOT.glob("lab[0-9][0-9]_*/checks.py")), *(ROOT / f"{name}.py" for name in SHARED)]
ENGLISH_WORDS = re.compile(r"\b(the|is|are|of|and|with|that|not|what|this|was|has|no|which|how|whether)\b", re.I)
TENSOR = {"shape": [3], "dtype": "float32", "first_values": [1.0]}
FAULTS: list[tuple[Any, Any, str]] = [
    (3.5, 2.5, "is 3.5, not 2.5 (off by 1)"),
    (False, True, "is False, not true"),
    (TENSOR, TENSOR, "differs in 2 of 3 values by up to 0.3; first at [1]: 1, not 2"),
    (0.1, "≥ 0.8", "is 0.1; expected ≥ 0.8"),
    ([1, 2, 3, 4, 5, 6], "< 3", "has 2 of 6 values that are not < 3; the first, at [1], is 9"),
    ([3], [4], "has shape [3], not [4]"),
]
CODE = re.compile(
    r"[A-Z_.0-9=]|^(absent|act|bench|betas|bias|camera|cart|cos|detail|draws|dx|dy|fit|gain|gantry|gate|key|labels|lr|mark|null|out"
    r"|query|scale|seed|sin|steps|type|up|validate|value|weight)$"
)
"""Names that stand in the lab's code, as a learner meets them there."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_what_is_measured(path: Path) -> None:
    for found in called(path.read_text(encoding="utf-8"), {"expect"}, 1):
        what = found.text.format(**dict.fromkeys(placeholders_of(found.text), "7")) if found.is_template else found.text
        subject = f"{what[:-1]}: this" if what.endswith((",", ":")) else what
        for measured, expected, fault in FAULTS:
            texts = compare(measured, expected, f"{subject} {fault}.")
            for text in (texts.measured, texts.expected or "", texts.details):
                korean = re.sub(r"`[^`]*`", "", translated(text, "ko"))
                assert not ENGLISH_WORDS.search(korean), (text, korean)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_word_that_a_check_puts_into_its_sentence_is_translated(path: Path) -> None:
    english = {
        word: text
        for text, word in placed_words(path.read_text(encoding="utf-8"))
        if re.search("[a-z]{2}", re.sub(r"`[^`]*`", "", word)) and not CODE.search(word)
        if translated(word, "ko") == word
    }
    assert not english, "translate them (PLACED in labs/locale/forms.py), or name them in CODE"
