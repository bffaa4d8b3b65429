"""The names of the collectives in torch.distributed."""

ALIKE = ("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
"""Calls whose tensor must have the same shape and dtype on every rank."""
REDUCTIONS = ("all_reduce", "all_reduce_coalesced", "all_gather", "reduce", "reduce_scatter_tensor")
"""Calls by which a program can average gradients itself."""
OTHERS = (
    *("all_gather", "all_gather_object", "all_to_all", "all_to_all_single", "barrier", "broadcast_object_list"),
    *("gather", "gather_object", "monitored_barrier", "reduce_scatter", "scatter", "scatter_object_list"),
)
