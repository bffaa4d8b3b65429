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
"""Of two equal mutants the one whose family comes first is kept, so the more telling families come first."""
