"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child.

Every run is a process of its own, a fork of that child, which is killed by SIGKILL in the middle. It has a folder for
its checkpoints and one pipe, through which it tells each step.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labs.vla.dataset import collate, demonstrations

STEPS, SAVE_EVERY, KILLED_AFTER, FRAMES, SEED = 60, 10, 46, 200, 72
HELD_OUT = 128
RESULT = "result.pt"


def killed(
    learner: Any,
    frames: int,
    seed: int,
    kills: list[int],
    while_saving: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """`fine_tune` on `frames` demonstrations, killed after each of the steps `kills` and continued.

    For each process: `steps`, `losses` and `rates`, the learning rates of its steps, and `ends`, how it ended. `after`
    is the state_dict at the end, `training` the policy's mode. `while_saving`: `kills` are the numbers of the
    checkpoints in each process, and it is killed when the first kilobyte of that checkpoint has been written.
    """
    data = demonstrations(frames, seed)
    seen: dict[str, Any] = {"steps": [], "losses": [], "rates": [], "ends": [], "after": {}, "training": None}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        folder.mkdir()
        result = Path(place) / RESULT
        for kill in [*kills, None]:
            told, end = _in_a_process(
                lambda tell, kill=kill: _run(learner, data, folder, result, seed, kill, while_saving, settings, tell)
            )
            seen["steps"].append([step for step, _, _ in told])
            seen["losses"].append([loss for _, loss, _ in told])
            seen["rates"].append([rate for _, _, rate in told])
            seen["ends"].append(end)
        if result.exists():
            seen |= torch.load(result, weights_only=True)
    return seen


def remembered(
    learner: Any,
    batches: list[dict[str, Tensor]],
    seed: int,
    used: int,
    training_first: bool,
    in_a_module: bool,
    training: bool,
    copied: bool = False,
) -> dict[str, Any]:
    """The losses of the last batch, of a policy that has seen all others and of one that loaded its state_dict.

    The other policy has seen the first `used` batches, and is in training mode or in evaluation mode when it loads. It
    loads alone or as a part of another module, which calls no `load_state_dict` of its parts. `training`: whether the
    last batch's losses are computed in training mode, or in evaluation mode. With `copied`, the other policy is a deep
    copy of a third one, which sees one more batch before the last batch's losses. `names` are those of the
    state_dict's tensors that differ afterwards, and `saved` the number of elements of each tensor.
    """
    first, third = (learner.policy.build_policy(seed) for _ in range(2))
    second = copy.deepcopy(third) if copied else third
    _losses(first.train(), batches[:-1], seed)
    _losses(second.train(), batches[:used], seed)
    second.train(training_first)
    saved, loaded = (nn.ModuleDict({"policy": one}) if in_a_module else one for one in (first, second))
    loaded.load_state_dict(_written_and_read(saved.state_dict()))
    if copied:
        _losses(third.train(), batches[:1], seed)
    first.train(training)
    if training != training_first:
        second.train(training)
    losses = [_losses(policy, batches[-1:], seed + 1)[0] for policy in (first, second)]
    return {
        "losses": losses,
        "in_a_module": in_a_module,
        "training": training,
        "copied": copied,
        "names": sorted(_different(first.state_dict(), second.state_dict())),
        "saved": {name: value.numel() for name, value in first.state_dict().items() if isinstance(value, Tensor)},
    }


def losses(learner: Any, batches: list[dict[str, Tensor]], seed: int, training: bool) -> dict[str, Any]:
    """The policy's loss for each batch in turn, with no optimizer step, and the gradients of the last.

    `predicted` (B, H, A) is what it predicts for the last batch, and `with_a_graph` the buffers that have one.
    """
    policy = learner.policy.build_policy(seed).train(training)
    found = _losses(policy, batches, seed)
    gradients = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    return {
        "losses": torch.tensor(found),
        "gradients": gradients,
        "predicted": policy.eval().predict(batches[-1]),
        "with_a_graph": [name for name, buffer in policy.named_buffers() if buffer.requires_grad],
    }


def order(learner: Any, frames: int, size: int, batches: int, saved_at: int, seed: int) -> dict[str, Any]:
    """The order's `taken` frames (N, size), and those of an order that loads its state before batch `saved_at`."""
    one = learner.policy.ShuffledOrder(frames, seed)
    taken = [torch.as_tensor(one.take(size)).clone() for _ in range(saved_at)]
    state = _written_and_read(one.state_dict())
    taken += [torch.as_tensor(one.take(size)).clone() for _ in range(batches - saved_at)]
    other = learner.policy.ShuffledOrder(frames, seed)
    other.take(size)
    other.load_state_dict(state)
    continued = [torch.as_tensor(other.take(size)).clone() for _ in range(batches - saved_at)]
    return {"taken": torch.stack(taken), "continued": torch.stack(continued)}


def tuned(learner: Any, frames: int, seed: int, louder: float, settings: dict[str, Any]) -> dict[str, Any]:
    """`fine_tune` without a kill: what the policy got in each step, its gradients before each update, and the end.

    The weights of the head's last layer are multiplied by `louder` before the first step.
    """
    batches: list[dict[str, Tensor]] = []
    training: list[bool] = []
    norms: list[dict[str, float]] = []
    told: list[tuple[int, float]] = []
    start: dict[str, Tensor] = {}
    built: list[Any] = []

    def look(policy: Any, _: Any, batch: dict[str, Tensor]) -> None:
        if not batches:
            built.append(policy)
            with torch.no_grad():
                policy.head.mlp[-1].weight.mul_(louder)
            start.update({name: value.detach().clone() for name, value in policy.named_parameters()})
        batches.append({name: column.clone() for name, column in batch.items()})
        training.append(policy.training)

    def note(*_: Any) -> None:
        norms.append({name: float(p.grad.norm()) for name, p in built[0].named_parameters() if p.grad is not None})

    with tempfile.TemporaryDirectory() as folder:
        learner.policy.fine_tune(demonstrations(frames, seed), Path(folder), seed=seed, steps=1)  # without `on_step`
    build = learner.policy.build_policy
    handles = [register_optimizer_step_pre_hook(note)]

    def watched(seed: int) -> Any:
        policy = build(seed)
        handles.append(policy.register_forward_pre_hook(look, with_kwargs=True))
        return policy

    learner.policy.build_policy = watched
    try:
        with tempfile.TemporaryDirectory() as folder:
            policy = learner.policy.fine_tune(
                demonstrations(frames, seed),
                Path(folder),
                seed=seed,
                on_step=lambda step, loss: told.append((step, loss)),
                **settings,
            )
    finally:
        learner.policy.build_policy = build
        for handle in handles:
            handle.remove()
    return {
        "batches": batches,
        "training": training,
        "norms": norms,
        "steps": [step for step, _ in told],
        "losses": [loss for _, loss in told],
        "start": start,
        "after": {name: value.detach() for name, value in policy.named_parameters()},
        "mode": policy.training,
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def preempted(learner: Any, seed: int, kills: list[int], steps: int) -> dict[str, Any]:
    """A longer run, `killed`, and its mean errors on other demonstrations: `movement`, in metres, and `gripper`."""
    seen = killed(learner, FRAMES, seed, kills, steps=steps)
    policy = learner.policy.build_policy(seed).eval()
    policy.load_state_dict(seen["after"])
    other = collate(demonstrations(HELD_OUT, seed=500_000 + seed), range(HELD_OUT))
    error = (policy.predict(other) - other["action"]).abs()[~other["action_is_pad"]]  # (N, A)
    return {**seen, "movement": error[:, :2].mean(), "gripper": error[:, 2].mean()}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the policy in training mode, a batch and its optimizer."""
    policy = learner.policy.build_policy(0).train()
    optimizer = learner.policy.build_optimizer(policy)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    return {"model": policy, "batch": collate(demonstrations(8, seed=72), range(8)), "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """One run in one go, and the same run killed and continued: what `lab run 72` shows."""
    asked = {"frames": FRAMES, "seed": SEED, "steps": STEPS, "save_every": SAVE_EVERY}
    straight, resumed = killed(learner, kills=[], **asked), killed(learner, kills=[KILLED_AFTER], **asked)
    first, again = (dict(zip(*pair, strict=True)) for pair in zip(resumed["steps"], resumed["losses"], strict=True))
    print(f"The same run twice; the second one was killed after step {KILLED_AFTER} and started again.\n")
    print("   step   in one go    killed, continued")
    for step, loss in zip(straight["steps"][0], straight["losses"][0], strict=True):
        if step in (1, 20, 39, 40, 41, 42, 43, 44, 50, 60):
            other = again.get(step, first.get(step))
            print(
                f"  {step:5d}   {loss:9.6f}   {other:9.6f}" + "   <- the first step from the checkpoint" * (step == 41)
            )
    names = _different(straight["after"], resumed["after"])
    print(f"\n  at the end, {len(names)} of {len(straight['after'])} tensors of the policy differ")


def _run(
    learner: Any,
    data: Any,
    folder: Path,
    result: Path,
    seed: int,
    kill: int | None,
    while_saving: bool,
    settings: dict[str, Any],
    tell: Callable[[Any], None],
) -> None:
    rates: list[float] = []
    register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(float(optimizer.param_groups[0]["lr"])))
    if while_saving and kill is not None:
        _die_in_the_checkpoint(kill)

    def on_step(step: int, loss: float) -> None:
        tell((step, loss, rates[-1] if rates else None))
        if not while_saving and step == kill:
            os.kill(os.getpid(), signal.SIGKILL)

    policy = learner.policy.fine_tune(data, folder, seed=seed, on_step=on_step, **settings)
    torch.save({"after": policy.state_dict(), "training": policy.training}, result)


def _die_in_the_checkpoint(number: int) -> None:
    """From now on, `torch.save` writes a kilobyte of the `number`-th checkpoint and kills the process."""
    save, count = torch.save, 0

    def dying(value: Any, file: Any, *arguments: Any, **keywords: Any) -> None:
        nonlocal count
        count += 1
        if count < number:
            save(value, file, *arguments, **keywords)
            return
        if hasattr(file, "write"):
            file.write(bytes(1024))
            file.flush()
        else:
            Path(file).write_bytes(bytes(1024))
        os.kill(os.getpid(), signal.SIGKILL)

    torch.save = dying


def _in_a_process(work: Callable[[Callable[[Any], None]], None]) -> tuple[list[Any], str]:
    """Run `work` in a fork with one thread; return what it told, and how it ended: "done", "killed" or the error."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def main() -> None:
        torch.set_num_threads(1)
        try:
            work(theirs.send)
            theirs.send("done")
        except Exception as error:  # the check decides what it means
            theirs.send(f"{type(error).__name__}: {error}".splitlines()[0])

    process = context.Process(target=main)
    process.start()
    theirs.close()
    told: list[Any] = []
    try:
        while True:
            told.append(ours.recv())
    except EOFError:
        pass
    process.join()
    ours.close()
    end = told.pop() if told and isinstance(told[-1], str) else "killed"
    return told, end


def _losses(policy: Any, batches: list[dict[str, Tensor]], seed: int) -> list[float]:
    torch.manual_seed(seed)
    found = []
    for batch in batches:
        policy.zero_grad()
        loss = policy(**batch).loss
        loss.backward()
        found.append(float(loss.detach()))
    return found


def _written_and_read(state: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / "state.pt")
        return torch.load(Path(folder) / "state.pt", weights_only=True)


def _different(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    both = one.keys() & other.keys()
    return (one.keys() ^ other.keys()) | {name for name in both if not _same(one[name], other[name])}


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else bool(one == other)


def between_operations(learner: Any, frames: int, seed: int, **settings: Any) -> dict[str, Any]:
    """Where runs continue that are killed between two operations on files, after the first checkpoint.

    `end` is how the process of a run in one go ends. For each of its `operations`, the number of the last step told
    before it. `continued` has for each the steps and losses told by a process that finds the folder as it was then, and
    how it ends.
    """
    data = demonstrations(frames, seed)
    with tempfile.TemporaryDirectory() as place:
        folder, copies = Path(place) / "run", Path(place) / "copies"
        for one in (folder, copies):
            one.mkdir()

        def copied(tell: Callable[[Any], None]) -> None:
            steps: list[int] = []
            _copy_before_operations(
                folder,
                copies,
                lambda what: tell((what, steps[-1])),
                after=lambda: steps[-1:] >= [settings["save_every"]],
            )
            learner.policy.fine_tune(data, folder, seed=seed, on_step=lambda step, _: steps.append(step), **settings)

        def continued(tell: Callable[[Any], None], found: Path) -> None:
            learner.policy.fine_tune(data, found, seed=seed, on_step=lambda *step: tell(step), **settings)

        operations, end = _in_a_process(copied)
        found = sorted(copies.iterdir())
        return {
            "operations": operations,
            "end": end,
            "continued": [_in_a_process(lambda tell, one=one: continued(tell, one)) for one in found],
        }


CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate")
"""Python's audit events of operations that change a folder."""
MOST_COPIES = 12


def _copy_before_operations(folder: Path, copies: Path, note: Callable[[str], None], after: Callable[[], bool]) -> None:
    """From now on, copy the folder before each operation that changes files, where `after` says so.

    If the operation opens a file of the folder for writing, that file is empty in the copy. `note` is told the
    operation of each copy.
    """
    busy = False

    def copy_now(what: str, emptied: Path | None = None) -> None:
        number = len(list(copies.iterdir()))
        if number < MOST_COPIES:
            to = copies / f"{number:02d}"
            shutil.copytree(folder, to, ignore_dangling_symlinks=True)
            if emptied is not None:
                (to / emptied.relative_to(folder)).write_bytes(b"")
            note(what)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal busy
        opened = event == "open" and bool(arguments[2] & os.O_TRUNC)
        if busy or not after() or not (opened or event in CHANGING):
            return
        busy = True
        try:
            if not opened:
                copy_now(event)
            elif isinstance(arguments[0], str | bytes | os.PathLike):
                file = Path(os.fsdecode(arguments[0])).absolute()
                if file.is_file() and folder in file.parents:
                    copy_now(event, emptied=file)
        finally:
            busy = False

    sys.addaudithook(hook)
