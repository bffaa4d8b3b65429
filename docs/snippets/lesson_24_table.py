"""Lesson 24: what each form of attention does with a row in which everything is masked."""

import torch
from torch import nn
from torch.nn import functional as F

INF, LOWEST = float("inf"), torch.finfo(torch.float32).min
SHOWS = torch.tensor([[True, True, False], [False, False, False]])  # two queries, three keys


def added(number):
    return torch.zeros(2, 3).masked_fill(~SHOWS, number)


def word(value):
    return "finite" if value.isfinite().all() else "NaN"


def row(name, output, *inputs):
    used = output[:1].sum()  # the second row is not used
    gradients = torch.autograd.grad(used, inputs)
    words = " ".join(f"{word(gradient):<9}" for gradient in gradients)
    print(f"{name:<33} {word(output[1:]):<13} {words}".rstrip())


def inputs():
    torch.manual_seed(0)
    return (torch.randn(size, 4, requires_grad=True) for size in (2, 3, 3))


print(f"{'':33} {'unused row':<13} gradient of")
print(f"{'':33} {'':13} query     key       value")
forms = [
    ("(scores + -inf).softmax", lambda s: (s + added(-INF)).softmax(-1)),
    ("  and nan_to_num", lambda s: (s + added(-INF)).softmax(-1).nan_to_num(0)),
    ("masked_fill(-inf).softmax", lambda s: s.masked_fill(~SHOWS, -INF).softmax(-1)),
    ("  and nan_to_num", lambda s: s.masked_fill(~SHOWS, -INF).softmax(-1).nan_to_num(0)),
    ("(scores + finfo.min).softmax", lambda s: (s + added(LOWEST)).softmax(-1)),
]
for name, weights in forms:
    query, key, value = inputs()
    row(name, weights(query @ key.T / 2) @ value, query, key, value)
query, key, value = inputs()
row("scaled_dot_product_attention", F.scaled_dot_product_attention(query, key, value, SHOWS), query, key, value)
for need_weights in (False, True):
    query, key, value = inputs()
    attention = nn.MultiheadAttention(4, 1)
    output = attention(query, key, value, attn_mask=~SHOWS, need_weights=need_weights)[0]
    row(f"MultiheadAttention, weights {need_weights}", output, query, key, value)
assert output.isnan().any()
