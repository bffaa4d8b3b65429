"""Sentences that no single text of the program holds: composed of parts, chosen by a key, or written by typer.

A text with braces is a template. `extract.py` puts all of them into the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator

WORDS = (
    # The status of a lab, what a lab is like, and the chapters.
    *("new", "started", "passed", "given up", "failed", "missing", "error", "silent", "loud"),
    *("shapes", "gradients", "numerics", "data", "actions", "loop", "memory"),
    *("reproducibility", "distributed", "frameworks"),
    # Kinds of check, and the verdicts.
    *("behaviour", "invariant", "outcome", "answer", "answer: not given yet", "answer: wrong"),
    *("not run: a check above failed", "not fixed yet", "fixed, but not answered yet", "the grader failed"),
    # Levels and achievements.
    *("print statement", "breakpoint", "hook", "probe", "instrument", "detector", "oracle", "tenacious", "unaided"),
    # Columns of `lab progress`, and the keys of `lab watch`.
    *("lab", "grades", "hints", "time", "hint", "list", "run", "next lab", "quit"),
    # Labels of the feedback, and the conditions of `lab doctor`.
    *("Problem", "Stuck?", "Answer", "Symptom", "Requirement", "Seed", "Measured", "Expected", "Details"),
    *("cpu", "gpu", "sandbox", "limits", "workspace"),
    *("edit", "read", "answer", "lesson"),
    *("training", "evaluation", "head", "policy"),
    # Stages of the demo.
    *("The symptom", "The grader refuses the broken policy", "debugkit finds the place", "The fix"),
    "The grader accepts the fixed policy",
    # Of one answer and of several.
    *("1 check", "{total} checks", "{failed} of 1 check failed", "{failed} of {total} checks failed"),
    *("1 answer", "{total} answers", "{failed} of 1 answer missing or wrong"),
    "{failed} of {total} answers missing or wrong",
)

PLACED = (
    *(
        "above",
        "below",
        "moves",
        "long",
        "short",
        "large",
        "small",
        "exact",
        "ordinary",
        "expanded",
        "sliced",
        "frozen",
        "trainable",
        "transposed",
    ),
    *("first", "second", "third", "fourth", "once", "twice", "before", "present", "another", "no other weights"),
    *("left", "right"),
    *("lowest", "highest"),
    *("from scratch", "resumed", "untrained", "batches", "tensors", "matrices"),
    *("chunk", "loss", "velocity", "action", "image", "wrist", "gripper", "movements", "mean", "std"),
    *("{number}-channel", "across", "down"),
    *("cosines", "sines", "feature"),
    *("noisy", "tokens", "mounted", "autograd nodes", "bytes of tensors"),
    *("embedded image", "in float16", "in float64"),
    "with batch_size=5 and learning_rate=3e-3",
    *("as the camera saw it", "red and blue exchanged", "grey", "another image"),
    *("upside down", "mirrored", "with the moments in reverse"),
    "red and blue exchanged, upside down",
    "red and blue exchanged, mirrored",
    "red and blue exchanged, with the moments in reverse",
    *("red", "green", "blue", "yellow"),
)
"""What a lab's check puts into a sentence or measures, word by word."""

COMPARISONS = (
    *("yes", "no", "none", "nothing"),
    "yes ({what})",
    "no ({what})",
    "{value} ({what})",
    "missing: {names}; not expected: {more}",
    "missing: {names}",
    "not expected: {names}",
    "{number} names",
    "{names} and {number} more",
    "{value} (off by {gap})",
    "{what}: {number} of {total} values differ by up to {gap}; first at {place}: {value}, not {other}.",
    "{what}: {number} of {total} values differs by up to {gap}; first at {place}: {value}, not {other}.",
    "{what}: {number} of {total} values differ (some values are not finite); first at {place}: {value}, not {other}.",
    "{what}: {number} of {total} values differs (some values are not finite); first at {place}: {value}, not {other}.",
    "{what}: {number} of {total} values are not {bound}; the first, at {place}, is {value}.",
    "{what}: {number} of {total} values is not {bound}; the first, at {place}, is {value}.",
    "{what}: the same values, but they should differ.",
    "{what}: {value}, expected {bound}.",
    "{what}: {place} is {value}, not {other}.",
    "{what} is {value}, not {other}.",
    "{what} is {value}, not {other} (off by {gap}).",
    "{what}: this is {value}, not {other}.",
    "{what}: this is {value}, not {other} (off by {gap}).",
    "{what} has shape {value}, not {other}.",
    "{what} has shape {value} at {place}, not {other}.",
    *("{what}: this has shape {value}, not {other}.", "{what}: this has length {value}, not {other}."),
    "{what} has dtype {value}, not {other}.",
    "{what} has dtype {value} at {place}, not {other}.",
    "{what} has length {value}, not {other}.",
    "{what} has length {value} at {place}, not {other}.",
    "{what} is {value} at {place}, not {other}.",
    "{what} lacks {key}.",
    "{what} lacks {key} at {place}.",
    "{what} has {key} too many.",
    "{what} has {key} too many at {place}.",
    "{what} lacks {key} and has {other} too many.",
    "{what} lacks {key} and has {other} too many at {place}.",
    "{what} is empty, so there is nothing to compare.",
    "{what} has NaN in it, which differs from every value.",
    "{what} is equal to {other}, but should differ.",
    "{what} is an integer that is too large for a measurement.",
    "{what} is {value}, not one of {wanted}.",
    "{what} has no {item}: {value}.",
    "a {dtype} tensor of shape {shape}",
    "a tensor of shape {shape}",
    "a dict of {number}",
    "a list of {number}",
    "a tuple of {number}",
    *("a number", "a dict", "a tensor", "true", "false"),
)
"""What `labs.grading.comparison` makes of the phrases of `labs.grading.difference` and of `expect`."""

SENTENCES = (
    "{failed} of {checks} checks failed; the first: {title}.",
    "{failed} of {checks} check failed; the first: {title}.",
    "The code passes, but {failed} of {results} answers in {file} are missing or wrong.",
    "The code passes, but {failed} of {results} answers in {file} is missing or wrong.",
    "The code passes, but {failed} of {results} answer in {file} is missing or wrong.",
    "{files} is missing from {folder}. `lab reset {id}` restores a fresh copy and keeps what is there now.",
    "{files} are missing from {folder}. `lab reset {id}` restores a fresh copy and keeps what is there now.",
    "{files} is in {folder}, but is not a file. `lab reset {id}` restores a fresh copy and keeps what is there now.",
    "{files} are in {folder}, but are not a file. `lab reset {id}` restores a fresh copy and keeps what is there now.",
    "progress.json could not be read. It is kept as {file}, and your progress starts from zero.",
    "progress.json could not be read. It is kept as {file}, and your progress is what it was before the last change.",
    " The file has `{key}`, which is not the name of a question.",
    "{where}: {sentence}",
    "{what} raised {error}: {text} ({file}, line {line}: {code})",
    "{what} raised {error}: {text}",
    *("The answer is {hint}, in {unit}.", "The answer is {hint}.", "The answer is one of: {choices}."),
    *("Merged 1 lab from {file}.", "Merged {count} labs from {file}."),
    *("The traceback is in {file}; please report it.", "Its traceback could not be saved ({why}). Please report it."),
    "LAB_LANG is {name}, but the languages are: {languages}.",
    "There is no language {name}. The languages are: {languages}.",
    "Lab {id} was not started. It is now, in {folder}",
    *("in progress", " or ", " and "),
    "{sentence} That is no problem for your own code; use a container for code from people you do not trust.",
)

TYPER = (
    *("Usage: ", "Arguments", "Options", "Commands", "Error", "[default: {}]", "[required]"),
    "{said}. `lab --help` lists the commands.",
    "No such option: {option}",
    "No such option: {option} Did you mean {other}?",
    "No such option: {option} (Possible options: {others})",
    "No such command {command}",
    "No such command {command}. Did you mean {other}?",
    "Missing argument {name}",
    "Missing option {name}",
    "Missing command",
    "Got unexpected extra argument(s) ({extra})",
    "Got unexpected extra argument ({extra})",
    "Got unexpected extra arguments ({extra})",
    "Option {option} requires an argument",
    "Option {option} does not take a value",
    "Invalid value for {name}: {why}",
    "Input should be greater than or equal to {number}",
    "Input should be less than or equal to {number}",
    "Input should be a valid integer, unable to parse string as an integer",
    "Input should be a valid integer",
)


def forms() -> Iterator[str]:
    """All of them."""
    yield from WORDS
    yield from PLACED
    yield from COMPARISONS
    yield from SENTENCES
    yield from TYPER
