"""`lab mystery`: labs without end. A seed composes a healthy policy and plants one or two faults into it.

- `names`, `policy_parts`, `tokenizer_parts`, `train_parts` and others: the parts of a program, as templates.
- `compose`: one program from a seed.
- `operators`: the faults. Each is a small edit of the templates, with its chapter, level, rule, symptom and hints.
- `plant`: chooses an operator and a program, plants the fault and checks the result before it is shown.
- `probe`: measures a program, in the child process and in the grader's. It is copied beside the learner's files.
- `aspects`: what is compared with the healthy program, and how closely.
- `mystery_lab`: the generated lab, which the ordinary grader runs.
"""
