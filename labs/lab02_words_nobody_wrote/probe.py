"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations
from labs.vla.language import VOCABULARY
from labs.vla.policy import OBSERVATION_KEYS, PolicyConfig

FRAMES = 8
STEPS = 100
WORDS = len(VOCABULARY)
"""Ids below this are the words of the instructions."""


def table(learner: Any, seed: int) -> dict[str, Any]:
    """The ids of the action tokens (48,), the input table, and the number of rows of input table and output head.

    `embedded` are the input rows that the policy looks up for these ids, None where that raises IndexError.
    """
    policy, _ = learner.policy.build_training(seed)
    rows = policy.language_model.embed_tokens.weight
    try:
        embedded = policy.embed_instruction(policy.head.ids[None])[0]
    except IndexError:
        embedded = None
    return {
        "ids": policy.head.ids,
        "input table": rows,
        "rows read": len(rows),
        "rows said": len(policy.lm_head.weight),
        "embedded": embedded,
    }


def tied(learner: Any, rows: Tensor, seed: int) -> dict[str, Any]:
    """The output head's last rows after `rows` (N, D) were written into the end of the input table.

    In the policy without action tokens, in the policy as built, and after `tie_weights` with a longer input table;
    then also the head's `out_features` and the number of rows.
    """
    policy, _ = learner.policy.build_training(seed)
    before = policy.lm_head.weight[-len(rows) :].detach().clone()
    found = {"pretrained": _written(learner.policy.pretrained(), rows), "built": _written(policy, rows)}
    longer = len(policy.language_model.embed_tokens.weight) + len(rows)
    policy.language_model.embed_tokens = nn.Embedding(longer, rows.shape[1], padding_idx=0)
    policy.tie_weights()
    found["tied again"] = _written(policy, rows)
    return {**found, "before": before, "out_features": policy.lm_head.out_features, "rows": longer}


def pretrained_parts(learner: Any, batch: dict[str, Tensor], embeddings: Tensor, seed: int) -> dict[str, Tensor]:
    """What each part of a fresh policy that has a pretrained counterpart computes, and the rows of the words."""
    policy, _ = learner.policy.build_training(seed)
    mask = torch.ones(embeddings.shape[:2], dtype=torch.long)
    with torch.no_grad():
        return {
            "words": policy.embed_instruction(torch.arange(WORDS)[None])[0],
            "images": policy.embed_images(batch["pixel_values"]),
            "state": policy.embed_state(batch["state"]),
            "hidden states": policy.run_language_model(embeddings, mask),
        }


def with_rows(learner: Any, batch: dict[str, Tensor], rows: Tensor, seed: int) -> dict[str, Any]:
    """The loss of `batch`, its gradient, and the chunk for its observations, with `rows` (48, D) for the actions.

    The rows of words stay, those of all other tokens are zero. The gradients are those of words and actions (62, D)
    in the input table, and of each part's first parameter. `predicted` is from `policy.predict` in training mode with
    NaN as the batch's actions, `said` from the policy itself in evaluation mode.
    """
    policy, _ = learner.policy.build_training(seed)
    table = policy.language_model.embed_tokens.weight
    with torch.no_grad():
        table[WORDS:] = 0
        table[policy.head.ids] = rows
    used = torch.cat([torch.arange(WORDS), policy.head.ids])
    loss = policy(**batch).loss
    loss.backward()
    observed = {name: batch[name] for name in OBSERVATION_KEYS}
    with torch.no_grad():
        said = policy.eval()(**observed)
    predicted = policy.train().predict({**observed, "action": torch.full_like(batch["action"], torch.nan)})
    return {
        "loss": loss,
        "tokens": len(table),
        "table": _gradient(table)[used],
        "vision": _gradient(policy.vision),
        "projector": _gradient(policy.projector),
        "proprioception": _gradient(policy.proprioception),
        "language_model": _gradient(policy.language_model.layers),
        "said": said.action,
        "loss without actions": said.loss,
        "predicted": predicted,
    }


def coded(learner: Any, action: Tensor) -> dict[str, Tensor]:
    """Normalised actions as token ids and back, and the ids of the bins (48,)."""
    policy, _ = learner.policy.build_training(0)
    ids = policy.head.encode(action)
    return {"bins": policy.head.ids, "ids": ids, "decoded": policy.head.decode(ids)}


def rows_before_and_after(learner: Any, batch: dict[str, Tensor], seed: int, steps: int) -> dict[str, Any]:
    """The input rows of each action token (48, D) and each word (14, D), before and after `steps` of the optimizer."""
    policy, optimizer = learner.policy.build_training(seed)
    before = _rows(policy)
    _train(policy, optimizer, batch, steps)
    after = _rows(policy)
    return {"before": before[WORDS:], "after": after[WORDS:], "words before": before[:WORDS], "words": after[:WORDS]}


def optimized(learner: Any, gradients: list[float]) -> dict[str, Any]:
    """How often the optimizer holds each trainable parameter, how many others, and what a value of 1 becomes.

    One step is made for each of `gradients`, the gradient of every value. `frozen` is how many parameters without a
    gradient an optimizer holds that is built after the vision tower was frozen.
    """
    policy, optimizer = learner.policy.build_training(0)
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    own = {name: value for name, value in policy.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for value in own.values():
            value.fill_(1.0)
    for gradient in gradients:
        for value in own.values():
            value.grad = torch.full_like(value, gradient)
        optimizer.step()
    others = set(held) - {id(value) for value in policy.parameters()}
    policy.vision.requires_grad_(False)
    groups = learner.policy.build_optimizer(policy).param_groups
    return {
        "held": {name: held.count(id(value)) for name, value in own.items()},
        "others": len(others),
        "frozen": sum(not parameter.requires_grad for group in groups for parameter in group["params"]),
        "matrices": [name for name, value in own.items() if value.dim() > 1],
        "after": {name: float(value.flatten()[-1]) for name, value in own.items()},
    }


def drawn(learner: Any, seed: int, state: int) -> dict[str, Any]:
    """The input table of a fresh policy and the ids of its action tokens.

    Also whether the caller's random state, seeded with `state`, is the same afterwards.
    """
    torch.manual_seed(state)
    before = torch.get_rng_state()
    policy, _ = learner.policy.build_training(seed)
    kept = torch.equal(before, torch.get_rng_state())
    table = policy.language_model.embed_tokens.weight
    return {"input table": table, "ids": policy.head.ids, "random state kept": kept}


def tokenizer(learner: Any, first: list[str], then: list[str]) -> dict[str, Any]:
    """A tokenizer of `first` to which `then` is added: lengths, the number added, and the ids of all tokens."""
    made = learner.policy.Tokenizer(first)
    lengths = [len(made)]
    added = made.add_tokens(then)
    return {"lengths": [*lengths, len(made)], "added": added, "ids": made.ids([*first, *then])}


def vocabulary(learner: Any) -> dict[str, Any]:
    """The ids of the words of the instructions, the number of text tokens, and the rows of the pretrained table."""
    policy, _ = learner.policy.build_training(0)
    text = learner.policy.pretrained()
    rows = len(text.language_model.embed_tokens.weight)
    return {"ids": policy.tokenizer.ids(VOCABULARY), "text tokens": len(text.tokenizer), "rows": rows}


def another_size(learner: Any, batch: dict[str, Tensor]) -> dict[str, Any]:
    """The loss and chunk of a policy whose chunks have the horizon of the batch's, without the pretrained base."""
    policy, _ = learner.policy.build_training(0)
    size = len(policy.language_model.embed_tokens.weight)
    policy = learner.policy.SpeakingPolicy(PolicyConfig(horizon=batch["action"].shape[1], vocabulary_size=size))
    policy.add_action_tokens()
    with torch.no_grad():
        loss = policy(**batch).loss
    return {
        "loss": loss,
        "said": policy.predict(batch),
        "head": [policy.head.horizon, policy.head.action_dim],
        "width": policy.lm_head.in_features,
        "saved": list(policy.state_dict()),
    }


def devices(learner: Any, batch: dict[str, Tensor]) -> dict[str, str]:
    """The device of the action ids in a policy on the meta device, and whether a CPU policy's own tensors stay there.

    New tensors are on the meta device by default while the CPU policy runs.
    """
    policy, _ = learner.policy.build_training(0)
    runs = "yes"
    try:
        with torch.device("meta"):
            policy(**batch)
            policy.predict(batch)
    except (RuntimeError, NotImplementedError) as error:
        runs = f"no: {error}"
    return {"ids": policy.to("meta").head.ids.device.type, "runs": runs}


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


def _written(policy: Any, rows: Tensor) -> Tensor:
    """The output head's last rows after `rows` were written into the end of the input table."""
    with torch.no_grad():
        policy.language_model.embed_tokens.weight[-len(rows) :] = rows
    written: Tensor = policy.lm_head.weight[-len(rows) :].detach().clone()
    return written


def _gradient(module: nn.Module | Tensor) -> Tensor:
    """The gradient of a tensor, or of a module's first parameter; zeros where there is none."""
    value: Tensor = module if isinstance(module, Tensor) else next(module.parameters())
    return torch.zeros_like(value) if value.grad is None else value.grad


def given_ids(learner: Any) -> dict[str, Tensor]:
    """The ids of a policy's action tokens, `first`, and the same after a second call of `add_action_tokens`, `again`.

    `rebuilt` are those of another policy that is built with as many rows, as one is before a checkpoint is loaded.
    """
    policy, _ = learner.policy.build_training(0)
    rows = len(policy.language_model.embed_tokens.weight)
    first = policy.head.ids.clone()
    policy.add_action_tokens()
    rebuilt = learner.policy.SpeakingPolicy(PolicyConfig(vocabulary_size=rows))
    rebuilt.add_action_tokens()
    return {"first": first, "again": policy.head.ids, "rebuilt": rebuilt.head.ids}


def known_tokens(learner: Any, tokens: list[str]) -> dict[str, list[int | None]]:
    """The ids of `tokens` in the pretrained policy's tokenizer `before` and `after` `add_action_tokens`.

    None for a token that the tokenizer does not know.
    """
    policy = learner.policy.pretrained()
    before = _ids(policy.tokenizer, tokens)
    policy.add_action_tokens()
    return {"before": before, "after": _ids(policy.tokenizer, tokens)}


def _ids(tokenizer: Any, tokens: list[str]) -> list[int | None]:
    """The id of each token, None where the tokenizer raises KeyError."""
    found: list[int | None] = []
    for token in tokens:
        try:
            found.append(int(tokenizer.ids([token])[0]))
        except KeyError:
            found.append(None)
    return found
