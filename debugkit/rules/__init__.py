"""How to write a rule in half an hour.

1. **The observation**, `debugkit/observations/<topic>.py`: a frozen dataclass of plain data (no torch) with what
   the judge must know. Look first whether one exists; `uses=` takes one that may be absent.
2. **Who makes it.** Seen while a step runs: a probe, `debugkit/probes/<topic>.py` (see `debugkit.probes`). Needs an
   intervention, or only reads parameters, data or an optimizer: an experiment, `debugkit/experiments/<verb_object>.py`
   with its cost (see `debugkit.experiments`). Files are found by themselves; nothing is listed anywhere.
3. **The rule**, `debugkit/rules/dkNNN_the_fault.py`. Imports no torch. The docstring is its page on the site: a
   first line of at most 100 characters that says the fault, then the seven headings below. Then one pure function:

       @rule("DK305", name="batch-leak", severity=Severity.ERROR, certainty=Certainty.PROOF, cost="2F",
             modes=("check",), needs=(BatchIndependence,))
       def judge(seen: BatchIndependence, context: Context) -> Iterator[Finding]:
           if seen.moved > seen.floor:
               yield context.finding("…what is wrong, with the number", module=…, at=…, evidence={…}, fix="…")

   Arguments are the observations of `needs`, then of `uses` (None where absent), then the context, which knows
   `context.declare` and `context.mode`. Evidence holds the measured numbers *and* the threshold they were held
   against. Raise `NotExamined("one sentence")` if the observation cannot answer. Yield one finding per root cause, not
   per symptom. `modes`: "check" (one observed step and experiments), "watch" (judged after each step of a live loop),
   "loader" (needs a dataloader). Consequences: `consequence_of=("DK105",)` folds this rule's findings under a DK105
   that covers their place; a cause lists what it spoils in `affects=`.
4. **Fixtures**, `tests/rules/dkNNN/fires.py` and `silent.py`: public functions without arguments, each a small program
   that returns check()'s arguments as a dict. In `fires.py` the line that a finding must name ends in `# DKNNN`. A key
   `expect` holds what else must be true of the finding: `{"module": "head", "parameter": …, "severity": "error",
   "message": "part of it", "count": 1}`; in `silent.py`, `{"not_examined": "part of the reason"}`. A key `loop`, a
   function `loop(model, optimizer)`, makes the fixture run under `watch()`. The runner, `tests/rules/test_fixtures.py`,
   also checks that nothing was changed. Write the silent ones first: tied weights, LoRA, MoE, GAN, accumulation, frozen
   towers are where a rule dies.
5. `pytest tests/rules -k dkNNN`, then `pytest tests/debugkit/test_rule_table.py`.

Page headings, all required: What it finds · Why it hurts · Evidence · Fix · When it stays silent · Cost · Lesson. The
last is a link, `[Lab 03](../../lessons/shapes/03_silent_broadcast.md)`, or starts with "No lab of its own".
"""
