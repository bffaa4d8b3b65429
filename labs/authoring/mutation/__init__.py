"""Mutation testing of a lab's checks: small changes of the solution, each of which a check should refuse.

`mutate.py` runs it for one lab; `operators/` holds the changes, which `catalogue.py` registers. A mutant ends as
refused by a check, as equivalent to the solution (with a reason in the lab's `equivalent_mutants.toml`), or as a hole.
"""
