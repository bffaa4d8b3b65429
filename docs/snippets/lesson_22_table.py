"""Lesson 22: which function gives Inf and which NaN at its edge, and what anomaly mode says, on this torch."""

# --8<-- [start:table]
import warnings

import torch
import torch.nn.functional as F

EDGES = {
    "x.sqrt()": (lambda x: x.sqrt(), [0.0]),
    "x ** 0.5": (lambda x: x**0.5, [0.0]),
    "x.log()": (lambda x: x.log(), [0.0]),
    "1 / x": (lambda x: 1 / x, [0.0]),
    "x.acos()": (lambda x: x.acos(), [1.0]),
    "x / x": (lambda x: x / x, [0.0]),
    "x * x.log()": (lambda x: x * x.log(), [0.0]),
    "torch.where(x > 0, x.sqrt(), 0)": (lambda x: torch.where(x > 0, x.sqrt(), 0.0), [0.0]),
    "x.pow(2).sum().sqrt()": (lambda x: x.pow(2).sum().sqrt(), [0.0, 0.0]),
    "torch.hypot(x[0], x[1])": (lambda x: torch.hypot(x[0], x[1]), [0.0, 0.0]),
    "x / x.norm()": (lambda x: x / x.norm(), [0.0, 0.0]),
    "x.softmax(0).log()": (lambda x: x.softmax(0).log(), [0.0, 200.0]),
    "F.normalize(x, dim=0)": (lambda x: F.normalize(x, dim=0), [0.0, 0.0]),
    "x.norm()": (lambda x: x.norm(), [0.0, 0.0]),
    "torch.linalg.vector_norm(x)": (lambda x: torch.linalg.vector_norm(x), [0.0, 0.0]),
    "x.std()": (lambda x: x.std(), [2.0, 2.0]),
    "torch.atan2(x[0], x[1])": (lambda x: torch.atan2(x[0], x[1]), [0.0, 0.0]),
}


def anomaly_mode(function, x):
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings(action="ignore"):
        try:
            function(x).sum().backward()
        except RuntimeError as error:
            return str(error).split("'")[1]
    return "silent"


print(f"{'function':<32} {'at':<12} {'value':<8} {'gradient':<9} anomaly mode")
for name, (function, at) in EDGES.items():
    x = torch.tensor(at, requires_grad=True)
    value = function(x)
    value.sum().backward()
    first = (float(value.detach().flatten()[0]), float(x.grad[0]))
    row = " ".join(f"{number:<8.3g}" for number in first)
    print(f"{name:<32} {at!s:<12} {row}  {anomaly_mode(function, torch.tensor(at, requires_grad=True))}")
# --8<-- [end:table]
assert anomaly_mode(torch.sqrt, torch.zeros(1, requires_grad=True)) == "silent"
