"""Faults of numerics: what is not finite, not precise or not the right number."""

from __future__ import annotations

from labs.mystery.operators.operator import POLICY, TRAIN, Edit, Operator

NUMERICS = (
    Operator(
        "softmax_twice",
        "numerics",
        2,
        "DK308",
        "head",
        "outputs",
        "The loss falls very slowly and never below a certain value.",
        "The cross-entropy receives probabilities, and applies softmax to them again.",
        (
            Edit(
                POLICY,
                "scores = self.logits(feature).permute(0, 3, 1, 2)",
                "scores = self.logits(feature).softmax(dim=-1).permute(0, 3, 1, 2)",
            ),
        ),
    ),
    Operator(
        "constant_number",
        "numerics",
        1,
        "DK402",
        "scaler",
        "scaling",
        "With the data of one robot the loss is NaN from the first batch on.",
        "A number of the action that never changes has no spread, and normalising divides by it.",
        (
            Edit(POLICY, "rows.std(dim=0).clamp(min=1e-3)", "rows.std(dim=0)"),
            Edit(POLICY, "(high - low).clamp(min=1e-3)", "high - low"),
        ),
    ),
    Operator(
        "empty_instruction",
        "numerics",
        1,
        "DK201",
        "text",
        "outputs",
        "One batch in a thousand has a loss of NaN.",
        "An instruction without a word divides by zero.",
        (Edit(POLICY, "total / weight.sum(dim=1).clamp(min=1.0)", "total / weight.sum(dim=1)"),),
    ),
    Operator(
        "masked_with_infinity",
        "numerics",
        1,
        "DK201",
        "text",
        "outputs",
        "One batch in a thousand has a loss of NaN.",
        "An instruction without a word has only scores of minus infinity, and their softmax is NaN.",
        (
            Edit(
                POLICY,
                "score.masked_fill(attention_mask == 0, -1e4)",
                'score.masked_fill(attention_mask == 0, float("-inf"))',
            ),
        ),
    ),
    Operator(
        "spread_unbounded",
        "numerics",
        2,
        "DK203",
        "head",
        "outputs",
        "Single frames far from the rest have a loss that is out of all proportion.",
        "The logarithm of the spread has no bounds, so its exponential can overflow or vanish.",
        (Edit(POLICY, "return mean, log_std.clamp(-4.0, 2.0)", "return mean, log_std"),),
    ),
    Operator(
        "autocast_off",
        "numerics",
        2,
        "DK208",
        "loop",
        "precision",
        "Mixed precision saves neither time nor memory.",
        "The loss is computed outside of autocast, so every layer runs in float32.",
        (
            Edit(
                TRAIN,
                'with torch.autocast("cpu", dtype=torch.bfloat16):',
                'with torch.autocast("cpu", dtype=torch.bfloat16, enabled=torch.is_autocast_enabled("cpu")):',
            ),
        ),
    ),
    Operator(
        "half_without_scaling",
        "numerics",
        2,
        "DK209",
        "loop",
        "precision",
        "Small gradients become zero: some layers do not learn.",
        "Autocast computes in float16, in which small gradients vanish; the loop has no gradient scaler.",
        (Edit(TRAIN, 'torch.autocast("cpu", dtype=torch.bfloat16)', 'torch.autocast("cpu", dtype=torch.float16)'),),
    ),
    Operator(
        "weights_in_bfloat16",
        "numerics",
        2,
        "DK204",
        "loop",
        "precision",
        "The loss falls at first; later the updates change nothing.",
        "The policy itself is converted to bfloat16, and updates smaller than its rounding are lost.",
        (
            Edit(
                TRAIN,
                "        self.policy = policy\n        self.recipe = recipe\n",
                "        self.policy = policy.to(torch.bfloat16)\n        self.recipe = recipe\n",
                (("torch.autocast", "torch.autocast"),),
            ),
        ),
    ),
    Operator(
        "whole_bins",
        "numerics",
        2,
        "DK405",
        "head",
        "outputs",
        "The arm is always a little to one side of where it should be.",
        "Encoding and decoding disagree by half a bin: the decoder returns the edge, not the centre.",
        (
            Edit(
                POLICY,
                "(index.float() + 0.5) * (2 * LIMIT / BINS) - LIMIT",
                "index.float() * (2 * LIMIT / BINS) - LIMIT",
            ),
        ),
    ),
)
