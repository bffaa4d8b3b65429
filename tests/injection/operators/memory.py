"""Memory: what stays alive from one step to the next."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "memory")
_HISTORY = r'^(\s+)history = \{"train": \[\], "valid": \[\]\}'
_AFTER = r"^(\s+)((?:loss|\(loss / ACCUMULATE\))\.backward\(\))$"

fault(
    "losses_kept_with_their_graphs",
    "DK601 DK602",
    "losses are kept with their graphs",
    [(r'(history\["train"\]\.append\(loss)\.item\(\)\)', r"\1)")],
    [(r"running \+= loss\.item\(\)", r"running += loss")],
)
fault(
    "validation_builds_graphs",
    "DK603",
    "validation records graphs",
    [(r"^    with torch\.(?:no_grad|inference_mode)\(\):$", r"    if True:")],
    [(r"^@torch\.no_grad\(\)\n", "")],
    lines=r"compute_loss\(model, batch\)\.item|def evaluate|evaluate\(\)",
)
fault(
    "validation_losses_keep_graphs",
    "DK603 DK601",
    "validation losses are summed with their graphs",
    [
        (r"^    with torch\.(?:no_grad|inference_mode)\(\):$", r"    if True:"),
        (r"total \+= compute_loss\(model, batch\)\.item\(\)", r"total += compute_loss(model, batch)"),
    ],
    lines=r"def evaluate|evaluate\(\)",
)
fault(
    "outputs_kept",
    "DK601 DK602",
    "outputs are kept for a metric with their graphs",
    [(_HISTORY, r"\g<0>\n\1outputs = []"), (_AFTER, r"\1outputs.append(loss * 1.0)\n\1\2")],
)
fault(
    "graph_retained",
    "DK601",
    "retain_graph is on, and the losses are kept",
    [
        (_HISTORY, r"\g<0>\n\1losses_so_far = []"),
        (r"\.backward\(\)$", r".backward(retain_graph=True)"),
        (
            r"^(\s+)((?:loss|\(loss / ACCUMULATE\))\.backward\(retain_graph=True\))$",
            r"\1\2\n\1losses_so_far.append(loss)",
        ),
    ],
)
fault(
    "second_order_graph_of_the_gradients",
    "DK601",
    "create_graph is on, so that the gradients have a graph",
    [(r"\.backward\(\)$", r".backward(create_graph=True)")],
    lines=r"\.backward",
)
fault(
    "cache_of_batches",
    "DK602",
    "every batch is kept in a cache that no one empties",
    [
        (_HISTORY, r"\g<0>\n\1cache = {}"),
        (
            _AFTER,
            r"\1cache[len(cache)] = {name: value.repeat(64, *[1] * (value.ndim - 1)) for name, value in batch.items()}\n\1\2",
        ),
    ],
)
fault(
    "hook_for_each_step",
    "DK605 DK602",
    "a hook that keeps what it sees is registered in every step",
    [
        (_HISTORY, r"\g<0>\n\1seen = []"),
        (
            r"^(\s+)((?:with torch\.autocast.*\n\s+)?loss = compute_loss\(model, batch\))$",
            r"\1next(iter(model.children())).register_forward_hook(lambda module, args, output: seen.append(args))\n\1\2",
        ),
    ],
)
fault(
    "weights_of_each_step",
    "DK602",
    "a copy of the weights is kept for each step",
    [
        (_HISTORY, r"\g<0>\n\1weights = []"),
        (_AFTER, r"\1weights.append({name: value.clone() for name, value in model.state_dict().items()})\n\1\2"),
    ],
)
fault(
    "gradients_of_each_step",
    "DK602",
    "gradients are kept for a plot",
    [
        (_HISTORY, r"\g<0>\n\1norms = []"),
        (_AFTER, r"\1\2\n\1norms.append([p.grad.clone() for p in model.parameters() if p.grad is not None])"),
    ],
)
fault(
    "average_of_the_loss_keeps_every_graph",
    "DK601",
    "a moving average of the loss, for a progress bar, keeps the graph of every step",
    [(_HISTORY, r"\g<0>\n\1smooth = 0.0"), (_AFTER, r"\1smooth = 0.9 * smooth + 0.1 * loss\n\1\2")],
)
fault(
    "data_set_keeps_what_it_made",
    "DK602",
    "the data set keeps a large copy of each sample that it returned",
    [
        (
            r"^    def __getitem__\(self, index\):$",
            r'\g<0>\n        self.__dict__.setdefault("kept", []).append(torch.zeros(20000))',
        )
    ],
)
