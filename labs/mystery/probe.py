"""Measures a program: in the child process beside the learner's code, and in the grader's process on the healthy one.

It is copied beside the learner's files, with the program's names filled in, so it imports nothing of `labs`.
"""

from __future__ import annotations

import contextlib
import gc
import io
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import default_collate

NAMES: dict[str, str] = {}
"""What the program calls each class and function."""
Batch = dict[str, Tensor]
OBSERVATION = ("image", "input_ids", "attention_mask", "state")


def checkpoint(learner: Any, state: Batch) -> dict[str, list[str]]:
    """Names of a checkpoint that the policy does not know, and parameters that the checkpoint does not hold."""
    policy = _fresh(learner)
    found = policy.load_state_dict(state, strict=False)
    parameters = dict(policy.named_parameters())
    return {
        "unknown": sorted(found.unexpected_keys),
        "not in the checkpoint": sorted(set(found.missing_keys) & set(parameters)),
        "frozen": sorted(name for name, one in parameters.items() if not one.requires_grad),
    }


def outputs(learner: Any, state: Batch, batches: list[Batch], wordless: Batch) -> dict[str, Any]:
    """Loss and chunk of each batch, in evaluation mode, and whether an instruction without a word gives a number."""
    policy = _loaded(learner, state).eval()
    with torch.no_grad():
        losses = [policy(**batch) for batch in batches]
    chunks = [policy.predict(**{name: batch[name] for name in OBSERVATION}) for batch in batches]
    chunk = policy.predict(**{name: wordless[name] for name in OBSERVATION})
    with torch.no_grad():
        is_number = bool(policy(**wordless).isfinite()) and bool(chunk.isfinite().all())
    named = wordless["attention_mask"].any(dim=1)
    return {"losses": losses, "chunks": [*chunks, chunk[named]], "no instruction gives a number": is_number}


def gradients(learner: Any, state: Batch, batch: Batch) -> dict[str, Any]:
    """The gradient of every parameter after one backward in training mode, without dropout; a name if there is none."""
    policy = _loaded(learner, state).train()
    with _without_dropout():
        policy(**batch).backward()
    return {name: "none" if one.grad is None else one.grad for name, one in policy.named_parameters()}


def modes(learner: Any, state: Batch, batch: Batch) -> dict[str, bool]:
    """What training mode and evaluation mode change, and what `predict` leaves behind."""
    policy = _loaded(learner, state)
    observation = {name: batch[name] for name in OBSERVATION}
    seen: dict[str, bool] = {}
    for mode, name in ((False, "evaluation"), (True, "training")):
        policy.train(mode)
        losses = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            losses.append(float(policy(**batch).detach()))
        seen[f"two losses in {name} mode are equal"] = losses[0] == losses[1]
        chunks = [policy.predict(**observation) for _ in range(2)]
        seen[f"two chunks in {name} mode are equal"] = torch.equal(*chunks)
        seen[f"predict keeps {name} mode"] = all(one.training == mode for one in policy.modules())
        seen[f"chunks in {name} mode hold a graph"] = chunks[0].requires_grad
    return seen


def optimizer(learner: Any) -> dict[str, Any]:
    """For each parameter: in how many groups it is, and its rate and decay at the start."""
    policy = _fresh(learner)
    made = getattr(learner.train, NAMES["make_optimizer"])(policy, _recipe(learner))
    names = {id(one): name for name, one in policy.named_parameters()}
    found: dict[str, list[float]] = {name: [0.0, 0.0, 0.0] for name in names.values()}
    strangers = 0
    for group in made.param_groups:
        for one in group["params"]:
            if id(one) not in names:
                strangers += 1
                continue
            held = found[names[id(one)]]
            held[:] = [held[0] + 1.0, float(group["lr"]), float(group["weight_decay"])]
    return {"parameters": found, "parameters of another module": strangers}


def training(learner: Any, state: Batch, batches: list[Batch], check: Batch) -> dict[str, Any]:
    """Losses, rates and effect of a short run, without dropout, on batches that are used in their order."""
    policy = _loaded(learner, state).eval()
    with _without_dropout(), _updates(policy) as found:
        trainer = _trainer(learner, policy)
        trainer.run(batches)
        found["in training mode"] = all(one.training for one in policy.modules())
    return found | _afterwards(trainer, policy, check)


def evaluation(learner: Any, state: Batch, batches: list[Batch]) -> dict[str, Any]:
    """The value of an evaluation, and what it does to the policy."""
    policy = _loaded(learner, state)
    seen: dict[str, Any] = {"records a graph": False, "uses dropout": False, "uses random numbers": False}

    def note(module: nn.Module, _args: Any) -> None:
        seen["records a graph"] |= torch.is_grad_enabled()
        seen["uses dropout"] |= module.training

    policy.register_forward_pre_hook(note)
    evaluate = getattr(learner.train, NAMES["evaluate"])
    for mode, name in ((True, "training"), (False, "evaluation")):
        policy.train(mode)
        torch.manual_seed(11)
        random_state = torch.get_rng_state()
        seen[f"value from {name} mode"] = float(evaluate(policy, batches))
        seen[f"keeps {name} mode"] = all(one.training == mode for one in policy.modules())
        seen["uses random numbers"] |= not torch.equal(random_state, torch.get_rng_state())
    after = policy.state_dict()
    seen["changed"] = sorted(name for name, one in state.items() if name in after and not torch.equal(after[name], one))
    return seen


def data(learner: Any, episodes: list[Batch], horizon: int) -> dict[str, Any]:
    """Every frame of the data, and two frames as a batch."""
    windows = getattr(learner.train, NAMES["Windows"])(episodes, horizon)
    items = [windows[number] for number in range(len(windows))]
    together = default_collate(items)
    return {"frames": len(windows), **{name: together[name] for name in sorted(together)}}


def order(learner: Any, length: int, seed: int) -> dict[str, Any]:
    """Properties of the order of an epoch, of its division between processes, and of the split of the episodes."""
    function = getattr(learner.train, NAMES["epoch_order"])

    def of(seed: int, epoch: int) -> list[int]:
        torch.manual_seed(torch.initial_seed() % 10_000 + 1)
        return [int(one) for one in function(length, seed, epoch)]

    first = of(seed, 0)
    seen: dict[str, Any] = {
        "visits every frame once": sorted(first) == list(range(length)),
        "is shuffled": first != sorted(first),
        "can be repeated": first == of(seed, 0),
        "differs between epochs": first != of(seed, 1),
        "differs between seeds": first != of(seed + 1, 0),
    }
    share = getattr(learner.train, NAMES["rank_share"])
    for size in (1, 2, 3):
        parts = [[int(one) for one in share(first, rank, size)] for rank in range(size)]
        every = [one for part in parts for one in part]
        seen[f"frames of each of {size} processes"] = [len(part) for part in parts]
        seen[f"frames that {size} processes visit"] = len(set(every))
    torch.manual_seed(1)
    train, held_out = getattr(learner.train, NAMES["split"])(length, 0.25, seed)
    torch.manual_seed(2)
    again = getattr(learner.train, NAMES["split"])(length, 0.25, seed)
    seen["episodes in both parts"] = len(set(train) & set(held_out))
    seen["episodes in either part"] = len(set(train) | set(held_out))
    seen["episodes held out"] = len(held_out)
    seen["the split can be repeated"] = (list(train), list(held_out)) == (list(again[0]), list(again[1]))
    return seen


def scaling(learner: Any, action: Tensor, action_is_pad: Tensor, others: Tensor) -> dict[str, Tensor]:
    """What a fitted scale makes of actions, and the way there and back."""
    scaler = getattr(learner.policy, NAMES["fit_scaler"])(action, action_is_pad)
    normalized = scaler.normalize(others)
    return {"normalized": normalized, "back again": scaler.unnormalize(normalized)}


def tokens(learner: Any, sentences: list[str], length: int) -> dict[str, Tensor]:
    """Ids and mask of sentences."""
    input_ids, attention_mask = getattr(learner.policy, NAMES["tokenize"])(sentences, length)
    return {"input_ids": input_ids * attention_mask, "attention_mask": attention_mask}


def serving(
    learner: Any, state: Batch, images: Tensor, states: Tensor, sentences: list[str], reset_at: list[int]
) -> dict[str, Any]:
    """The actions of one runner over several episodes, and whether what it holds grows."""
    policy = _loaded(learner, state)
    runner = getattr(learner.policy, NAMES["Runner"])(policy)
    actions, sizes = [], []
    for step, (image, joints) in enumerate(zip(images, states, strict=True)):
        if step in reset_at:
            runner.reset()
            sizes.append(_held(runner)["tensors"])
        actions.append(runner.act(image, sentences[step], joints))
    return {"actions": torch.stack(actions), "holds more after every episode": len(set(sizes[1:])) > 1}


def resume(learner: Any, state: Batch, batches: list[Batch], at: int) -> dict[str, Any]:
    """Losses of a run that is interrupted after `at` batches, saved to a file, and continued by a new process."""
    with _without_dropout():
        first = _trainer(learner, _loaded(learner, state))
        first.run(batches[:at])
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        policy = _fresh(learner)
        second = _trainer(learner, policy)
        second.load_state_dict(torch.load(file, weights_only=True))
        with _updates(policy) as found:
            second.run(batches[at:])
    return found | _afterwards(second, policy, batches[0])


def memory(learner: Any, state: Batch, batches: list[Batch]) -> dict[str, Any]:
    """What is still held after a few steps and after twice as many."""
    policy = _loaded(learner, state)
    trainer = _trainer(learner, policy)
    sizes = []
    for _ in range(3):
        trainer.run([{name: one.clone() for name, one in batch.items()} for batch in batches])
        sizes.append(_held([trainer, learner]))
    grows = {kind: sizes[2][kind] > sizes[1][kind] for kind in sizes[0]}
    return {"holds more graph nodes after every step": grows["nodes"], "holds more tensors": grows["tensors"]}


def precision(learner: Any, state: Batch, batches: list[Batch]) -> dict[str, Any]:
    """The dtypes that linear layers compute in while training, as shares, and the dtype of the parameters."""
    policy = _loaded(learner, state)
    counts: dict[str, int] = {}

    def note(_module: nn.Module, _args: Any, output: Tensor) -> None:
        counts[str(output.dtype)] = counts.get(str(output.dtype), 0) + 1

    for one in policy.modules():
        if isinstance(one, nn.Linear):
            one.register_forward_hook(note)
    _trainer(learner, policy).run(batches)
    total = sum(counts.values())
    shares = {dtype: count / total for dtype, count in sorted(counts.items())}
    return {"linear layers": shares, "parameters": sorted({str(one.dtype) for one in policy.parameters()})}


def recipe(learner: Any, file: dict[str, Any], command_line: dict[str, str], unknown: str) -> dict[str, Any]:
    """The settings that a file and a command line give, and whether an unknown setting is refused."""
    read = getattr(learner.train, NAMES["read_recipe"])
    got = read(file, command_line)
    settings = {name: getattr(got, NAMES[name]) for name in ("rate", "warmup", "max_norm")}
    settings["shuffle"] = got.shuffle
    refused = []
    for arguments in (({unknown: 1}, {}), ({}, {unknown: "1"})):
        try:
            read(*arguments)
            refused.append(False)
        except Exception:
            refused.append(True)
    return {
        "settings": {
            name: float(value) if isinstance(value, (int, float)) else value for name, value in settings.items()
        },
        "types": {name: type(value).__name__ for name, value in settings.items()},
        "unknown settings are refused": refused,
    }


def combine(learner: Any, losses: list[list[float]], frames: list[list[int]]) -> list[float]:
    """The loss over all processes, for several distributions of the frames."""
    function = getattr(learner.train, NAMES["combine"])
    return [float(function(some, counts)) for some, counts in zip(losses, frames, strict=True)]


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, a batch and the program's optimizer."""
    policy = _fresh(learner)
    made = getattr(learner.train, NAMES["make_optimizer"])(policy, _recipe(learner))

    def loss_of(model: Any, batch: Batch) -> Tensor:
        return model(**batch)

    return {"model": policy, "batch": _examples(3)[0], "loss_fn": loss_of, "optimizer": made}


def _examples(count: int, size: int = 6, seed: int = 3) -> list[Batch]:
    """Batches with something to learn: the action follows the state, the image and the first words."""
    random = torch.Generator().manual_seed(seed)
    mix = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    batches = []
    for _ in range(count):
        image = torch.randint(0, 256, (size, 16, 16, 3), generator=random, dtype=torch.uint8)
        lengths = torch.randint(2, 7, (size, 1), generator=random)
        mask = (torch.arange(6) < lengths).long()
        input_ids = torch.randint(2, 11, (size, 6), generator=random) * mask
        state = torch.randn(size, 5, generator=random)
        action = (state @ mix)[:, None].expand(-1, int(NAMES["the_horizon"]), -1) + (input_ids[:, 1:2, None] > 6)
        if NAMES["the_padding"] == "left":
            input_ids, mask = input_ids.flip(1), mask.flip(1)
        pad = torch.arange(int(NAMES["the_horizon"])) >= torch.randint(2, 7, (size, 1), generator=random)
        names = ("image", "input_ids", "attention_mask", "state", "action", "action_is_pad")
        batches.append(dict(zip(names, (image, input_ids, mask, state, action.contiguous(), pad), strict=True)))
    return batches


def _fresh(learner: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(learner.policy, NAMES["Config"])()
    scaler = getattr(learner.policy, NAMES["Scaler"])(torch.zeros(3), torch.ones(3))
    return getattr(learner.policy, NAMES["Policy"])(config, scaler)


def _loaded(learner: Any, state: Batch) -> Any:
    policy = _fresh(learner)
    policy.load_state_dict(state, strict=False)
    return policy


def _recipe(learner: Any) -> Any:
    return getattr(learner.train, NAMES["Recipe"])()


def _trainer(learner: Any, policy: Any) -> Any:
    return getattr(learner.train, NAMES["Trainer"])(policy, _recipe(learner))


def _numbers(values: Any) -> list[float]:
    return [float(one) for one in values]


@contextlib.contextmanager
def _updates(policy: Any) -> Iterator[dict[str, Any]]:
    """Each update's rates, in thousandths, and norm of the gradient; after the block, how far parameters moved."""
    start = {name: one.detach().clone() for name, one in policy.named_parameters()}
    found: dict[str, Any] = {"rates": [], "norms": []}

    def note(made: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        found["rates"].append(sorted({1000 * float(group["lr"]) for group in made.param_groups}))
        held = [one.grad for group in made.param_groups for one in group["params"] if one.grad is not None]
        found["norms"].append(float(torch.stack([one.norm() for one in held]).norm()) if held else 0.0)

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield found
    finally:
        hook.remove()
    moved = {name: (one - start[name]).detach().square().mean().sqrt() for name, one in policy.named_parameters()}
    found["moved"] = {name: float(one) for name, one in moved.items()}


def _afterwards(trainer: Any, policy: Any, batch: Batch) -> dict[str, Any]:
    found: dict[str, Any] = {"losses": _numbers(trainer.history)}
    with torch.no_grad():
        found["loss afterwards"] = float(policy.eval()(**batch))
        if "average" in NAMES:
            found["loss of the average"] = float(trainer.average.eval()(**batch))
    return found


@contextlib.contextmanager
def _without_dropout() -> Iterator[None]:
    """Dropout that keeps everything, so that a fix may use random numbers in another order."""
    original = F.dropout
    F.dropout = lambda input, *_args, **_kwargs: input
    try:
        yield
    finally:
        F.dropout = original


_NOT_FOLLOWED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, str, bytes)


def _held(root: Any) -> dict[str, int]:
    """How many tensors can be reached from an object, and how many nodes their graphs have."""
    roots = [root]
    if isinstance(root, list):
        for module in vars(root[1]).values():
            roots += [one for one in vars(module).values() if not isinstance(one, _NOT_FOLLOWED)]
        roots = [root[0], *roots[1:]]
    seen, waiting, tensors, graphs = {id(roots)}, roots, 0, []
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _NOT_FOLLOWED):
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            tensors += 1
            if one.grad_fn is not None:
                graphs.append(one.grad_fn)
            continue
        waiting.extend(gc.get_referents(one))
    nodes: set[Any] = set()
    while graphs:
        node = graphs.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            graphs.extend(following for following, _ in node.next_functions)
    return {"tensors": tensors, "nodes": len(nodes)}
