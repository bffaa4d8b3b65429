"""What the comparison of outputs accepts, and what it refuses."""

from __future__ import annotations

import pytest

from labs.authoring import printed


@pytest.mark.parametrize(
    ("shown", "measured"),
    [
        ("loss 2650.88", "loss 2651.00"),  # one part in a thousand
        ("gradient off by 4e-03", "gradient off by 5e-03"),  # one unit of the last digit
        ("dx  +0.53 mm", "dx  +0.54 mm"),
        ("norm   9.99 at 3", "norm  10.00 at 3"),  # aligned to the right
        ("1e-05 and 9.8e-06", "9e-06 and 9.9e-06"),
        ("184,456.5 of it", "184,456.6 of it"),
        ("100.6418%", "100.6417%"),
    ],
)
def test_a_measurement_may_differ_a_little(shown: str, measured: str) -> None:
    assert printed.same_line(shown, measured)


@pytest.mark.parametrize(
    ("shown", "measured"),
    [
        ("51 of 51 gradients", "50 of 51 gradients"),  # a count
        ("(8, 64, 4, 4)", "(8, 64, 4, 5)"),
        ("184,456 NaN", "184,457 NaN"),
        ("loss 0.85", "loss 0.87"),
        ("4e-03", "6e-03"),
        ("0e+00", "1e-09"),  # nothing, and something
        ("moves by 0.0 mm", "moves by 0.1 mm"),
        ("1.00 and more", "1.00"),
        ("down.1 gave 0.5", "down.2 gave 0.5"),  # a digit of a name
        ("DK002 0.5", "DK003 0.5"),
        ("+0.5", "-0.5"),
        ("loss 1.5", "loss nan"),
        ("a  1.50", "a 1.50"),
    ],
)
def test_anything_else_must_be_equal(shown: str, measured: str) -> None:
    assert not printed.same_line(shown, measured)


@pytest.mark.parametrize(
    ("shown", "measured", "same"),
    [
        ("  149   1.287", "  149   1.350", True),
        ("  149   1.287", "  149   1.450", False),
        ("  149   1.287", "  150   1.287", False),  # a step is a count
        ("50 episodes: 72% success", "50 episodes: 80% success", True),
        ("50 episodes: 72% success", "50 episodes: 90% success", False),
        ("50 episodes: 72% success", "40 episodes: 72% success", False),
        ("after 11 s", "after 7 s", True),
        ("after 11 steps", "after 7 steps", False),
    ],
)
def test_a_training_run_may_differ_more(shown: str, measured: str, same: bool) -> None:
    tolerance = printed.Tolerance(relative=0.1, points=10, any_time=True)
    assert printed.same_line(shown, measured, tolerance) is same
    assert not printed.same_line(shown, measured)


def test_the_shown_lines_are_together_in_what_is_printed() -> None:
    assert printed.difference("a 1\nb 2", "first\na 1\nb 2\nlast") is None
    assert printed.difference("a 1\nb 2", "a 1\nbetween\nb 2") == "shown:   b 2\nprinted: between"
    assert printed.difference("a 1\nb 2", "a 1") == "shown:   b 2\nprinted: nothing more"
    assert printed.difference("a 1", "") == "nothing was printed"
