"""The rules, one folder each. `debugkit dev rule DK316 labels-shuffled` creates one, with its fixtures.

`rules/dk305_batch_leak/__init__.py` holds three things and imports no torch:

1. **The page**, its docstring: a first line of at most 110 characters that names the fault, then the headings What it
   finds, Why it hurts, Evidence, Fix, When it stays silent, Cost (optional), Lesson. The cost itself is computed; under
   `## Cost` is only what the number does not say. The lesson is a link, `[Lab 03](../../lessons/shapes/03_….md)`, or
   starts with "No lab of its own".
2. **The observation**, a frozen dataclass that names its measurement (see `debugkit.observation`). One that several
   rules need is in `debugkit/measurements/` instead: look there first.
3. **The judge**, a pure function:

       @rule("DK305", name="batch-leak", severity=Severity.ERROR, certainty=Certainty.PROOF,
             modes=("check",), needs=(BatchIndependence,))
       def judge(seen: BatchIndependence, context: Context) -> Iterator[Finding]:
           if seen.moved > seen.floor:
               yield context.finding("…what is wrong, with the number", module=…, at=…, evidence={…}, fix="…")

   Arguments are the observations of `needs`, then those of `uses` (None where absent), then the context, which has
   `context.declare` and `context.mode`. Evidence holds the measured numbers and the thresholds they are compared with.
   Raise `NotExamined("one sentence")` if the observation cannot answer. Yield one finding per root cause. `modes`:
   "check" (one observed step and active measurements), "watch" (judged after each step of a live loop), "call" (also
   measured by `debugkit run`, on a recorded call of the model), "loader" (needs a dataloader), "config".
   `consequence_of=("DK105",)` folds this rule's findings under a DK105 that covers their place; a cause lists what it
   spoils in `affects=`.

`rules/dk305_batch_leak/measure.py` holds **the measurement**. Passive, while a step runs: a class, see
`debugkit.probe`. Active, an intervention: a function of a `TrainingSetup`. `debugkit/recorders/` and
`debugkit/interventions/` have the parts.

**Fixtures**, `tests/rules/dk305/fires.py` and `silent.py`: public functions without arguments, each a small program
that returns check()'s arguments as a dict. In `fires.py` the line that a finding must name ends in `# DK305`. A key
`expect` holds what else must be true: `{"module": "head", "parameter": …, "severity": "error", "message": "part of it",
"count": 1}`; in `silent.py`, `{"not_examined": "part of the reason"}`. A key `loop`, a function
`loop(model, optimizer)`, makes the fixture run under `watch()`. The runner also checks that nothing was changed. Write
the silent ones first: rules fail on tied weights, LoRA, mixtures of experts, GANs, accumulation and frozen towers.

Then run `pytest tests/rules -k dk305` and `pytest tests/debugkit/test_rule_table.py`.
"""
