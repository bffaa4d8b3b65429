"""The sandbox: a limited child process that runs the learner's code, and the protocol to talk to it.

    grader ──starts──▶ supervisor ──(namespaces)──▶ init ──▶ child (the learner's files, probe.py)
       └──────────────── requests, replies, output ──────────────┘

`supervisor` and all that it imports use only the standard library, so that one starts in milliseconds. `session` is the
grader's side, `child` the learner's; `frames` and `values` are the protocol between them; `fork_server` starts a child
quickly. This is not a security boundary: `docs/grading.md` says what it does not stop.
"""
