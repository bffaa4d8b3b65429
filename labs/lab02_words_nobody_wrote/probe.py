"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations

FRAMES = 8
STEPS = 100
WORDS = 14
"""Ids below this are the words of the instructions."""


def table(learner: Any, seed: int) -> dict[str, Any]:
    """The ids of the action tokens (48,), and the number of rows of the input table and of the output head."""
    policy, _ = learner.policy.build_training(seed)
    return {
        "ids": policy.head.ids,
        "rows read": len(policy.language_model.embed_tokens.weight),
        "rows said": len(policy.lm_head.weight),
    }


def spoken(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The loss of a fresh policy on `batch`, the logits behind it (B, H * A, rows), and the actions' token ids."""
    policy, _ = learner.policy.build_training(seed)
    logits: list[Tensor] = []
    handle = policy.lm_head.register_forward_hook(lambda _, __, output: logits.append(output))
    with torch.no_grad():
        loss = policy.eval()(**batch).loss
    handle.remove()
    return {"loss": loss, "logits": logits[-1], "ids": policy.head.ids}


def round_trip(learner: Any, action: Tensor) -> dict[str, Tensor]:
    """Normalised actions (N,) as token ids and back."""
    policy, _ = learner.policy.build_training(0)
    ids = policy.head.encode(action)
    return {"ids": ids, "decoded": policy.head.decode(ids)}


def rows_before_and_after(learner: Any, batch: dict[str, Tensor], seed: int, steps: int) -> dict[str, Any]:
    """The input rows of each action token (48, D) and each word (14, D), before and after `steps` of the optimizer."""
    policy, optimizer = learner.policy.build_training(seed)
    before = _rows(policy)
    _train(policy, optimizer, batch, steps)
    after = _rows(policy)
    return {"before": before[WORDS:], "after": after[WORDS:], "words before": before[:WORDS], "words": after[:WORDS]}


def optimized(learner: Any) -> dict[str, int]:
    """How often each trainable parameter of a fresh policy occurs in the optimizer's groups."""
    policy, optimizer = learner.policy.build_training(0)
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    return {name: held.count(id(value)) for name, value in policy.named_parameters() if value.requires_grad}


def logits(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The logits of the chunk's first action token, (B, 48)."""
    policy, _ = learner.policy.build_training(seed)
    names = ("pixel_values", "input_ids", "attention_mask", "state")
    with torch.no_grad():
        prefix, mask = policy.eval().embed_prefix(*(batch[name] for name in names))
        nothing = torch.empty(len(prefix), 0, dtype=torch.long)
        return policy.next_tokens(prefix, mask, nothing)[:, -1, policy.head.ids]


def learnt_by_heart(learner: Any, seed: int) -> dict[str, Tensor]:
    """After many steps on a few frames: the generated and the expert's actions, in units of the action space."""
    policy, optimizer = learner.policy.build_training(seed)
    batch = next(batches(demonstrations(FRAMES, seed), FRAMES, steps=1, seed=seed))
    losses = _train(policy, optimizer, batch, STEPS)
    said = policy.eval().predict(batch)
    steps = ~batch["action_is_pad"]
    scale = policy.action_statistics.std
    return {"said": said[steps] / scale, "expert": batch["action"][steps] / scale, "final loss": losses[-1]}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, its optimizer and a batch of demonstrations."""
    policy, optimizer = learner.policy.build_training(0)
    batch = next(batches(demonstrations(16, seed=2), 16, steps=1, seed=2))
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """The first batch: what `lab run 02` shows."""
    print("One batch of demonstrations for the policy with action tokens\n")
    try:
        policy, optimizer = learner.policy.build_training(0)
        batch = next(batches(demonstrations(FRAMES, seed=2), FRAMES, steps=1, seed=2))
        for step, loss in enumerate(_train(policy, optimizer, batch, STEPS)):
            if step % 20 == 0 or step == STEPS - 1:
                print(f"  step {step:3d}   loss {loss:6.3f}")
    except (IndexError, RuntimeError) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/torch/" not in frame.filename]
        print("  Traceback (most recent call last):")
        for frame in frames[-4:]:
            file = frame.filename.rpartition("/labs/vla/")
            where = f"labs/vla/{file[2]}" if file[1] else frame.filename.rpartition("/")[2]
            print(f"    {where}:{frame.lineno} in {frame.name}\n      {frame.line}")
        print(f"  {type(error).__name__}: {error}\n")
        print(Path(__file__).with_name("cuda_log.txt").read_text(encoding="utf-8"), end="")


def _train(policy: Any, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor], steps: int) -> list[float]:
    losses = []
    policy.train()
    for _ in range(steps):
        loss = policy(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def _rows(policy: Any) -> Tensor:
    """The input row of every word and every action token, (14 + 48, D)."""
    ids = torch.cat([torch.arange(WORDS), policy.head.ids.cpu()])
    with torch.no_grad():
        return policy.embed_instruction(ids[None])[0].clone()
