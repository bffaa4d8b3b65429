"""The grader: runs a learner's code in a sandboxed child process and judges the results in its own.

For a lab's checks.py (pytest functions with the fixtures `submission`, `rng`, `seed`):

    from labs.grading import check, expect, wrong_fix, facts, SubmissionRaisedError

    @check(kind="behaviour", title="…", property="…", instrument="debugkit.trace_shapes(policy, batch)")
    def test_loss_equals_the_reference(submission, rng):
        prediction, target = rng.normal(7), rng.normal(7, 1)
        measured = submission.call("gripper_loss", prediction, target)   # learner.policy.gripper_loss, in the child
        expect(measured, "the loss").close_to(reference(prediction, target))
        report = submission.observe("gradients", seed=rng.seed())   # probe.py's gradients(learner, seed=…)

    @wrong_fix("summed_instead", says="…")
    def recognise_sum(evidence): return evidence["test_loss_equals_the_reference"]["measured"] > 100

`expect(x, "name")`: close_to, equals, below, above, at_most, at_least, between, finite, is_true, is_false, one_of,
contains, has_shape, differs_from. `rng`: normal, uniform, integers, integer, permutation, boolean, choice, seed.
`facts(tensor)`: stride, requires_grad, is_leaf, storage, device, type_name, grad_fn, as they were in the child process.

For programs: `grade(lab, folder_or_files, seed=, all_checks=, on_check=, server=, outcome_seed=, answers=) -> Grade`,
`declared_by(lab)`, `ForkServer()` (a context manager to pass as `server`), `diagnose(lab, folder)`,
`run_symptom(lab, folder, stream)`, `json_document(grades)`, `junit(grades)`, `gradescope(grades)`,
`exit_code(grades)`, `feedback_steps(grade, lab)`, `protections()`.

Everything is imported on first use: `labs.grading.catalog` needs neither torch nor pytest.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "check": "declarations",
    "wrong_fix": "declarations",
    "expect": "expectations",
    "facts": "sandbox.values",
    "TensorFacts": "sandbox.values",
    "Opaque": "sandbox.values",
    "Rng": "rng",
    "Submission": "submission",
    "SubmissionRaisedError": "errors",
    "SubmissionDiedError": "errors",
    "SubmissionFileError": "errors",
    "SubmissionFailure": "errors",
    "GradingError": "errors",
    "UsageError": "errors",
    "MissingExtraError": "errors",
    "SandboxError": "errors",
    "CheckError": "errors",
    "grade": "grader",
    "declared_by": "runner",
    "Declared": "declarations",
    "diagnose": "queries",
    "run_symptom": "queries",
    "SymptomRun": "queries",
    "ForkServer": "sandbox.fork_server",
    "json_document": "documents",
    "junit": "documents",
    "gradescope": "documents",
    "exit_code": "documents",
    "Protection": "sandbox.protections",
    "protections": "sandbox.protections",
    "FeedbackStep": "feedback",
    "feedback_steps": "feedback",
    "Grade": "grades",
    "CheckResult": "grades",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
