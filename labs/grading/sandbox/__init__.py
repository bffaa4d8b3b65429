"""The sandbox: a disposable, limited child process that holds the learner's code, and the wire to it.

    grader ──starts──▶ supervisor ──(namespaces)──▶ init ──▶ child (the learner's files, probe.py)
       └──────────────── requests, replies, output ──────────────┘

`supervisor` and everything it needs is standard library only, so that starting one costs milliseconds. `session` is the
grader's side; `child` the learner's; `frames` and `values` the wire between them; `fork_server` the warm way to a
child. What this is not: a security boundary. `docs/grading.md` says what it does not stop.
"""
