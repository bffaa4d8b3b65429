"""The operators, a file a family."""

FAMILIES = (
    "dispatch",
    "gradients",
    "masks",
    "pairs",
    "selection",
    "statements",
    "conditions",
    "arguments",
    "places",
    "reductions",
    "arithmetic",
    "numbers",
    "errors",
    "configuration",
)
"""The more informative families come first: of two equal mutants, the one of the earlier family is kept."""
