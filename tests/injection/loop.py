"""The text of an optimizer, a schedule, loaders, a validation and a training loop, in the idioms that people use."""

from __future__ import annotations

import random
import textwrap
from typing import Any

OPTIMIZERS = (
    ("torch.optim.AdamW({parameters}, lr={rate:g}, weight_decay=0.01)", 1.0),
    ("torch.optim.Adam({parameters}, lr={rate:g})", 1.0),
    ("torch.optim.AdamW({parameters}, lr={rate:g}, betas=(0.9, 0.95))", 1.0),
    ("torch.optim.NAdam({parameters}, lr={rate:g})", 1.0),
    ("torch.optim.RMSprop({parameters}, lr={rate:g})", 0.3),
    ("torch.optim.SGD({parameters}, lr={rate:g}, momentum=0.9)", 10.0),
)
PARAMETERS = (
    "model.parameters()",
    "model.parameters()",
    "[p for p in model.parameters() if p.requires_grad]",
    """[
        {{"params": [p for p in model.parameters() if p.ndim > 1]}},
        {{"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0}},
    ]""",
)
SCHEDULES = {
    "none": "",
    "warm-up": "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))",
    "cosine": "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)",
    "one cycle": "torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr={rate:g}, total_steps=STEPS)",
    "epochs": "torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)",
}


def loop(chance: random.Random, rate: float, data: str, fixed: dict[str, object]) -> str:
    """From the optimizer to the function `train()`, which returns the losses."""
    chosen: dict[str, Any] = {
        "optimizer": chance.choice(OPTIMIZERS),
        "parameters": chance.choice(PARAMETERS),
        "schedule": chance.choice(list(SCHEDULES)),
        "accumulation": chance.choice((1, 1, 1, 2, 3)),
        "clip": chance.choice(("", "", "norm", "value")),
        "autocast": chance.choice((False, False, False, True)),
        "zero": chance.choice(("before", "before", "after", "model", "kept")),
        "validate": chance.choice(("epoch", "epoch", "end", "steps")),
        "no_grad": chance.choice(("with torch.no_grad():", "with torch.inference_mode():", "@torch.no_grad()")),
        "log": chance.choice(("item", "running")),
        "best": chance.choice((False, False, True)),
        "average": chance.choice((False, False, False, True)),
        "samples": chance.choice((48, 60, 64)),
        "batch": 8,
        "after_step": "",
        "factor": chance.choice((0.5, 1.0, 1.0)),
    } | fixed
    if chosen["accumulation"] == 3:
        chosen["samples"] = 48  # six micro-batches: no step sees fewer than the others
    if chosen["schedule"] == "one cycle" and "RMSprop" in chosen["optimizer"][0]:
        chosen["schedule"] = "cosine"  # one cycle needs a momentum
    epochs = 2 if chosen["accumulation"] == 1 else 3
    micro = -(-chosen["samples"] // chosen["batch"])
    steps = epochs * -(-micro // chosen["accumulation"])
    optimizer, scale = chosen["optimizer"]
    rate = rate * scale * chosen["factor"]
    parts = [
        f"EPOCHS, BATCH, ACCUMULATE = {epochs}, {chosen['batch']}, {chosen['accumulation']}\nSTEPS = {steps}\n",
        _loaders(chosen, data),
        "optimizer = " + optimizer.format(parameters=chosen["parameters"].format(), rate=rate) + "\n",
        f"scheduler = {SCHEDULES[chosen['schedule']].format(rate=rate)}\n" if chosen["schedule"] != "none" else "",
        "average = copy.deepcopy(model).requires_grad_(False)\n" if chosen["average"] else "",
        "\n",
        _evaluate(chosen),
        "\n",
        _train(chosen),
    ]
    return "\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _loaders(chosen: dict[str, Any], data: str) -> str:
    collate = ", collate_fn=collate" if "def collate" in data else ""
    return (
        f"train_data, valid_data = Data({chosen['samples']}, seed=1), Data(16, seed=2)\n"
        f"train_loader = DataLoader(train_data, batch_size=BATCH, shuffle=True{collate})\n"
        f"valid_loader = DataLoader(valid_data, batch_size=BATCH{collate})\n"
    )


def _evaluate(chosen: dict[str, Any]) -> str:
    guard = chosen["no_grad"]
    lines = ["for batch in valid_loader:", "    total += compute_loss(model, batch).item()"]
    if guard.startswith("with"):
        lines = [guard, *(f"    {line}" for line in lines)]
    body = ["model.eval()", "total = 0.0", *lines, "model.train()", "return total / len(valid_loader)"]
    head = [guard] if guard.startswith("@") else []
    return "\n".join([*head, "def evaluate():", *(f"    {line}" for line in body)]) + "\n"


def _train(chosen: dict[str, Any]) -> str:
    accumulates = chosen["accumulation"] > 1
    divided = " / ACCUMULATE" if accumulates else ""
    zero = {"model": "model.zero_grad()", "kept": "optimizer.zero_grad(set_to_none=False)"}.get(
        chosen["zero"], "optimizer.zero_grad()"
    )
    after = chosen["zero"] == "after" or accumulates
    forward = ["loss = compute_loss(model, batch)"]
    if chosen["autocast"]:
        forward = ["with torch.autocast(device.type, dtype=torch.bfloat16):", "    loss = compute_loss(model, batch)"]
    update = {
        "": [],
        "norm": ["torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"],
        "value": ["torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)"],
    }[chosen["clip"]]
    update = [*update, "optimizer.step()"]
    if chosen["schedule"] not in ("none", "epochs"):
        update.append("scheduler.step()")
    if after:
        update.append(zero)
    if chosen["after_step"]:
        update += chosen["after_step"].split("\n")
    if chosen["average"]:
        update += [
            "with torch.no_grad():",
            "    for kept, now in zip(average.parameters(), model.parameters()):",
            "        kept.lerp_(now, 0.1)",
        ]
    update.append("step += 1")
    if chosen["validate"] == "steps":
        update += ["if step % 5 == 0:", '    history["valid"].append(evaluate())']
    if accumulates:
        update = [
            "if (number + 1) % ACCUMULATE == 0 or number + 1 == len(train_loader):",
            *(f"    {u}" for u in update),
        ]
    log = ['history["train"].append(loss.item())'] if chosen["log"] == "item" else ["running += loss.item()"]
    body = [*([] if after else [zero]), *forward, f"(loss{divided}).backward()" if divided else "loss.backward()"]
    body += [*update, *log]
    epoch = ["model.train()"] + (["running = 0.0"] if chosen["log"] == "running" else [])
    epoch += ["for number, batch in enumerate(train_loader):", *(f"    {line}" for line in body)]
    epoch += ['history["train"].append(running / len(train_loader))'] if chosen["log"] == "running" else []
    epoch += ["scheduler.step()"] if chosen["schedule"] == "epochs" else []
    epoch += ['history["valid"].append(evaluate())'] if chosen["validate"] == "epoch" else []
    best = (
        [
            'if history["train"][-1] < best_loss:',
            '    best_loss, best = history["train"][-1], copy.deepcopy(model.state_dict())',
        ]
        if chosen["best"]
        else []
    )
    lines = [
        'history = {"train": [], "valid": []}',
        *(["best, best_loss = None, math.inf"] if best else []),
        "step = 0",
        *(["optimizer.zero_grad()"] if after else []),
        "for epoch in range(EPOCHS):",
        *(f"    {line}" for line in [*epoch, *best]),
        *(["model.load_state_dict(best)"] if best else []),
        *(['history["valid"].append(evaluate())'] if chosen["validate"] == "end" else []),
        "return history",
    ]
    return "def train():\n" + textwrap.indent("\n".join(lines), "    ") + "\n"
