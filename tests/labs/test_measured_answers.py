"""The correct answer to every question is what a measurement on the starter gives, and not a claim."""

from __future__ import annotations

import os
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader

from labs.authoring.lab_module import load_module, load_variant
from labs.forked_processes import run_in_processes
from labs.grading.answers import correct_answers, refusal
from labs.grading.catalog import Lab, all_labs, find
from labs.recordings import Recording, record
from labs.two_cameras import as_delivered
from labs.two_robots import ROBOTS, recordings
from labs.vla.dataset import Batch, batches, collate, demonstrations, observation_batch
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness
from labs.wide_camera import observations_of, wide_demonstrations

pytestmark = pytest.mark.slow
Measure = Callable[[ModuleType], str | float]
ASKED = {(lab.id, question.id): (lab, question) for lab in all_labs() for question in lab.questions}


def one_batch(frames: int, size: int, seed: int) -> Batch:
    """The batch that the lessons use."""
    return next(batches(demonstrations(frames, seed=seed), batch_size=size, steps=1, seed=seed))


def patches_moved(starter: ModuleType) -> float:
    policy = starter.build_policy(seed=0).eval()
    counts = set()
    with torch.no_grad():
        patches = policy.vision(pixel_values=one_batch(8, 8, 3)["pixel_values"]).last_hidden_state
        for patch in range(16):
            changed = patches.clone()
            changed[:, patch] += 1
            moved = (policy.pyramid(changed, (4, 4)) - policy.pyramid(patches, (4, 4))).norm(dim=-1)  # (B, 16)
            counts |= set((moved > moved.amax(dim=1, keepdim=True) / 2).sum(dim=1).tolist())
    (count,) = counts  # the same for every patch and every image
    return count


def frames_that_change(_starter: ModuleType) -> float:
    without = load_variant(find("06"), "without_the_count")
    policy = without.build_policy(seed=0).eval()
    random = torch.Generator().manual_seed(6)
    images = torch.randint(0, 256, (8, 2, 64, 64, 3), dtype=torch.uint8, generator=random)
    state, said = torch.rand(8, 3, generator=random), ["go to red"] * 8
    said[2] += " now" * 5
    together = policy.predict(without.observation_batch(images, state, said))
    alone = [policy.predict(without.observation_batch(images[[i]], state[[i]], [said[i]])) for i in range(8)]
    change = (together - torch.cat(alone)).flatten(1).norm(dim=1) / together.flatten(1).norm(dim=1)
    assert not ((change > 1e-5) & (change < 1e-3)).any()
    return int((change > 1e-4).sum())


def last_changed_row(starter: ModuleType) -> float:
    image = torch.zeros(1, 3, 64, 64)
    changed = image.clone()
    changed[:, :, 16:32, 16:32] += 1
    rows = (starter.patchify(changed, 16) != starter.patchify(image, 16)).any(dim=2)[0]
    return int(rows.nonzero().max())


def numbers_without_gradient(starter: ModuleType) -> float:
    policy = starter.build_policy(seed=0)
    policy(**one_batch(32, 32, 3)).loss.backward()
    return sum(parameter.numel() for parameter in policy.parameters() if parameter.grad is None)


def largest_outside(starter: ModuleType) -> str:
    policy = starter.build_policy(seed=0)
    optimizer = starter.build_optimizer(policy)
    starter.train_step(policy, optimizer, one_batch(32, 32, 3))
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    norms = {name: one.grad.norm() for name, one in policy.named_parameters() if id(one) not in held}
    return _largest(norms, margin=1.1)


def unchanged_weights(starter: ModuleType) -> float:
    policy = Policy.from_base(seed=17)
    start = parameters_to_vector(policy.parameters()).detach()
    optimizer, scaler = starter.build_optimizer(policy), starter.build_scaler(policy, scale=2.0**16)
    starter.training_step(policy, one_batch(32, 16, 17), optimizer, scaler)
    return 100 * (parameters_to_vector(policy.parameters()) == start).double().mean().item()


def wrong_sign_below(starter: ModuleType) -> float:
    gate = torch.linspace(-5, 5, 10_001, dtype=torch.float64, requires_grad=True)
    up, eps = torch.ones_like(gate), 1e-6
    (shipped,) = torch.autograd.grad(starter.gated_activation(gate, up).sum(), gate)
    with torch.no_grad():
        difference = starter.gated_activation(gate + eps, up) - starter.gated_activation(gate - eps, up)
    return gate.detach()[shipped.sign() != difference.sign()].max().item()


def breaks_at(starter: ModuleType) -> float:
    for exponent in range(-1, -46, -1):
        point = torch.tensor([10.0**exponent, 0.0], requires_grad=True)
        starter.distance(point, torch.zeros(2)).backward()
        assert point.grad is not None
        if not point.grad.isfinite().all():
            return exponent
    raise AssertionError("Every gradient is finite.")


def mean_time(starter: ModuleType) -> float:
    torch.manual_seed(26)
    return starter.sample_times(torch.zeros(2**20, 1, dtype=torch.bfloat16)).nanmean().item()


def finite_after_backward(starter: ModuleType) -> str:
    frames = starter.wrist_demonstrations(2000, seed=3)
    policy = starter.build_policy(frames, seed=0)
    policy(**next(batches(frames, batch_size=32, steps=1, seed=3))).loss.backward()
    finite = {name: one.grad.isfinite().sum() for name, one in policy.named_parameters() if one.grad is not None}
    return _largest(finite, margin=2)


def closing_targets_of_cell(starter: ModuleType) -> float:
    mixture = starter.mixture({robot: recordings(robot, 1000, seed=46) for robot in ROBOTS})
    of_cell = mixture.action[1000:][~mixture.action_is_pad[1000:]]
    return float(100 * (of_cell[:, 2] > 0).mean())


def tenth_movement(starter: ModuleType) -> float:
    ensemble = starter.TemporalEnsemble(lambda _: torch.ones(1, starter.HORIZON, 3))
    movements = [float(ensemble({})[0, 0, 0]) for _ in range(10)]
    return movements[-1]


def different_rows(starter: ModuleType) -> float:
    rotary = starter.build_policy(0).bfloat16().language_model.rotary_emb
    cosines_and_sines = rotary(torch.zeros(1, dtype=torch.bfloat16), torch.arange(2048)[None])
    return len(torch.unique(torch.cat(cosines_and_sines, dim=-1)[0], dim=0))


def millimetres_of_another_plan(starter: ModuleType) -> float:
    class Labelled(nn.Module):
        def predict(self, batch: Batch) -> Tensor:
            origin = 10 * torch.arange(len(batch["state"]))[:, None] + torch.arange(4)
            return (origin / 1000)[..., None].expand(-1, -1, 3)

    robots = starter.QueuedPolicy(Labelled(), action_steps=4)
    return [1000 * float(robots.select_action({"state": torch.zeros(5, 3)})[2, 0]) for _ in range(2)][-1]


def second_episode(starter: ModuleType) -> float:
    policy = starter.build_policy(0)
    policy.predict = lambda _: torch.zeros(1, 8, 3)
    robots = starter.EnsemblingRobots(policy, num_robots=1)
    for _ in range(5):
        robots.select_action({"state": torch.tensor([[0.9, 0.5, -1.0]])})
    robots.reset(torch.tensor([True]))
    return 100 * float(robots.select_action({"state": torch.tensor([[0.1, 0.5, -1.0]])})[0, 0])


def moved_by_padding(starter: ModuleType) -> float:
    policy, frames = starter.build_policy(0).eval(), demonstrations(1, seed=17)

    def logits(width: int) -> Tensor:
        batch = observation_batch(frames.image, frames.state, frames.instruction, length=width)
        return policy(**batch, action=torch.from_numpy(frames.action)).logits[0, 0].detach()

    alone = logits(1 + len(frames.instruction[0].split()))
    return float(100 * (logits(48) - alone).norm() / alone.norm())


def pixels_moved(starter: ModuleType) -> float:
    frames = wide_demonstrations(1, seed=48)
    with TemporaryDirectory() as folder:
        starter.save_checkpoint(Path(folder), Policy.from_base(), starter.TRAINED_WITH, {})
        served = starter.Robot(Path(folder)).observe(observations_of(frames))["pixel_values"]
    trained = starter.training_batch(frames, np.arange(1), starter.TRAINED_WITH)["pixel_values"]
    return float(100 * (served - trained).norm() / trained.norm())


def counted(starter: ModuleType) -> float:
    policy = starter.build_policy(seed=0)
    frames = demonstrations(3, seed=0)
    observation = starter.observation_batch(frames.image, frames.state, frames.instruction)
    seen = policy(**observation, **starter.collate_texts(["o 17 100", "c 33 -26", "o -9 -100"]))
    seen.logits.retain_grad()
    seen.loss.backward()
    return float(seen.logits.grad.ne(0).any(dim=-1).sum())


def not_finite(starter: ModuleType) -> float:
    batch = one_batch(32, 32, 24)
    batch["views"] = torch.randn(32, 2, 3, 64, 64, generator=torch.Generator().manual_seed(24))
    batch["shows"] = torch.ones(32, 2, 16, dtype=torch.bool)
    batch["shows"][5, 1] = False
    policy = starter.build_policy(seed=0)
    policy(**batch).loss.backward()
    parameters = list(policy.parameters())
    assert len(parameters) == 62
    return sum(not parameter.grad.isfinite().all() for parameter in parameters)


def weight_ratio(starter: ModuleType) -> float:
    """The share of the window's loss that one step has, in the first micro-batch and in the last."""
    policy, window = starter.build_policy(seed=3).eval(), starter.split(one_batch(32, 32, 3), 4)
    with torch.no_grad():
        factors = [starter.loss_share(policy, part, window) / policy(**part).loss for part in window]
    first, *_, last = (factor / starter.steps_of(part).sum() for factor, part in zip(factors, window, strict=True))
    return float(first / last)


def keeps_most(starter: ModuleType) -> str:
    policy = starter.build_policy(seed=0)
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}
    running: list[str] = []
    kept: dict[int, Tensor] = {}
    held: Counter[str] = Counter()

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in weights and place not in kept:
            kept[place] = tensor
            held[running[-1] if running else ""] += tensor.untyped_storage().nbytes()
        return tensor

    for name, module in policy.named_modules():
        if not list(module.children()):
            _name_while_it_runs(module, name, running)
    held_out = list(batches(demonstrations(64, seed=3), batch_size=16, steps=4, seed=3))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        starter.validate(policy, held_out)
    held.pop("", None)  # what no single layer computes
    return _largest({name: torch.tensor(float(size)) for name, size in held.items()}, margin=2)


def _name_while_it_runs(module: nn.Module, name: str, running: list[str]) -> None:
    module.register_forward_pre_hook(lambda *_: running.append(name))
    module.register_forward_hook(lambda *_: running.clear())


def different_tables(starter: ModuleType) -> float:
    loader = starter.build_loader(tables=64, seed=71, batch_size=16)
    arms = torch.cat([batch["state"][:, :2] for _ in range(12) for batch in loader])
    assert len(arms) == 768
    return len(arms.unique(dim=0))


def weight_at_the_kill(starter: ModuleType) -> float:
    weights = []
    loss = starter.ConstrainedPolicy.loss

    def noting(policy: Policy, *given: Tensor) -> Tensor:
        weights.append(policy.gripper_weight)
        return loss(policy, *given)

    with (
        TemporaryDirectory() as folder,
        patch.object(starter.ConstrainedPolicy, "loss", noting),
        torch.random.fork_rng(devices=()),
    ):
        starter.fine_tune(demonstrations(200, 72), Path(folder), steps=60, seed=72)
    return weights[40]


def bytes_not_averaged(starter: ModuleType) -> float:
    policy, batch = starter.MixedPolicy.from_base(seed=0), one_batch(16, 16, 8)
    no_image = torch.zeros(16, dtype=torch.bool)
    policy(**{**batch, "pixel_values": batch["pixel_values"][no_image], "has_image": no_image}).loss.backward()
    return sum(parameter.nbytes for parameter in policy.parameters() if parameter.grad is None)


def parameters_that_differ(starter: ModuleType) -> float:
    def weights_after_a_step(rank: int) -> dict[str, Tensor]:
        policy = starter.wrap(starter.build_policy(seed=rank))
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
        starter.train(policy, optimizer, [one_batch(32, 32, rank)])
        return {name: value.detach() for name, value in starter.unwrap(policy).named_parameters()}

    first, second = (process["returned"] for process in run_in_processes(weights_after_a_step))
    return sum(not torch.equal(first[name], second[name]) for name in first)


def more_calls_for_three_robots(starter: ModuleType) -> float:
    import lightning

    frames, calls = one_batch(16, 16, 92), Counter[int]()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, strategy="ddp", **quiet)
    for robots in (3, 2):
        loader = DataLoader([{**frames, "robot": torch.arange(16) % robots}], batch_size=None)
        with (
            patch.dict(os.environ),  # Lightning leaves its rank there, by which accelerate would join a group
            warnings.catch_warnings(),
            patch.object(dist, "barrier") as barrier,
            patch.object(dist, "all_reduce") as all_reduce,
        ):
            warnings.simplefilter("ignore")  # Lightning's, on loggers and workers
            trainer.validate(starter.build_module(0), loader, verbose=False)  # a group of one has nothing to send
        calls[robots] = barrier.call_count + all_reduce.call_count
    dist.destroy_process_group()
    return calls[3] - calls[2]


def sum_of_the_unused(starter: ModuleType) -> float:
    frames, used = demonstrations(30, seed=83), set()
    for rank in (0, 1):
        loader = starter.build_loader(frames, 4, rank=rank, world_size=2, seed=83)
        for epoch in range(5):
            used |= {number for batch in starter.epoch_of(loader, epoch).batch_sampler for number in batch}
    return sum(set(range(30)) - used)


def second_rate(starter: ModuleType) -> float:
    policy, rates = starter.build_policy(seed=0), []
    optimizer = starter.build_optimizer(policy)
    optimizer.register_step_pre_hook(lambda stepping, *_: rates.append(stepping.param_groups[0]["lr"]))
    stream = batches(demonstrations(32, seed=54), batch_size=1, steps=2 * 16, seed=54)
    with pytest.warns(UserWarning, match="lr_scheduler"):  # PyTorch's, on the order of two calls that are in order
        starter.train(policy, optimizer, stream, updates=80, parts=16)
    return 1e4 * rates[1]


def first_loss(starter: ModuleType) -> float:
    """The loss of the run's first batch with four draws, whatever the starter makes of the setting."""
    policy = Policy.from_base(head="flow_matching", seed=94)
    first = next(batches(demonstrations(80 * 16, seed=94), batch_size=16, steps=80, seed=94))
    with private_randomness(94), torch.no_grad():
        return float(starter.velocity_error(policy, first, draws=4))


def loss_of_eight_demonstrations(starter: ModuleType) -> float:
    samples = starter.mixture(12, seed=96)
    eight = [samples[index] for index in range(8)]
    assert all("action" in sample for sample in eight)
    with torch.no_grad():
        return float(starter.build_model(seed=0)(**starter.collate(eight)).loss)


def kept_images(starter: ModuleType) -> float:
    decode, alive = Recording.decode, Counter({"images": 0})

    def counted(recording: Recording, segment: int) -> Tensor:
        images = decode(recording, segment)
        alive["images"] += len(images)
        weakref.finalize(images.untyped_storage(), alive.subtract, {"images": len(images)})
        return images

    with patch.object(Recording, "decode", counted):
        dataset = starter.RecordedFrames(record(80, seed=64))
        for index in starter.FewEpisodesAtATime(dataset, seed=64):
            dataset[index]
        return alive["images"]


def first_with_a_graph(starter: ModuleType) -> str:
    """The first module without children whose output requires a gradient in training mode."""
    policy, seen = starter.build_policy(0).train(), dict[str, Tensor]()
    for name, module in policy.named_modules():
        if not list(module.children()):
            module.register_forward_hook(partial(_keep, seen, name))
    policy(**one_batch(8, 8, 3))
    return next(name for name, output in seen.items() if output.requires_grad)


def patches_outside(starter: ModuleType) -> float:
    """How many patches of a 4:3 image have a value outside of the tower's range."""
    image = np.zeros((96, 128, 3), np.uint8)
    patches = F.unfold(starter.prepare_image(image)[None], 16, stride=16)  # (1, 3 * 16 * 16, 16)
    return int((patches.abs() > 1).any(dim=1).sum())


def first_other_output(starter: ModuleType) -> str:
    """The first module whose output is not the one of the policy without FiLM, found by the end of its name."""
    batch, seen = one_batch(16, 16, 8), []
    for policy in (Policy.from_base(seed=0), starter.build_policy(0)):
        seen.append({})
        for name, module in policy.named_modules():
            if not list(module.children()):
                module.register_forward_hook(partial(_keep, seen[-1], name))
        policy.eval().predict(batch)
    without, shipped = seen
    names = {name: name.replace("vision.tower.", "vision.") for name in shipped}
    new = [name for name, plain in names.items() if plain not in without]
    assert new == ["vision.scale", "vision.shift"]
    others = {name: out - without[names[name]] for name, out in shipped.items() if name not in new}
    first = next(name for name, difference in others.items() if difference.any())
    assert others[first].norm() > 0.1 * without[names[first]].norm()
    return first


def yellow_in_training(starter: ModuleType) -> float:
    shown = demonstrations(1, seed=36)
    table = np.full_like(shown.image, (235, 210, 40))
    files = starter.record(starter.grab(as_delivered(table)))
    moment = starter.Recording(files, shown.state, shown.instruction, shown.action, shown.action_is_pad)
    values = collate(starter.training_frames(moment), [0])["pixel_values"][0, 2].unique()
    (value,) = values.tolist()  # the same for every pixel of both cameras
    return value


def _keep(seen: dict[str, Tensor], name: str, _module: nn.Module, _inputs: object, output: object) -> None:
    if isinstance(output, Tensor):
        seen[name] = output


def _largest(sizes: dict[str, Tensor], margin: float) -> str:
    """The name of the largest, which no other comes near: rounding on another processor must not change it."""
    (size, name), (next_size, _) = sorted(((float(one), name) for name, one in sizes.items()), reverse=True)[:2]
    assert size > margin * next_size
    return name


MEASURED: dict[tuple[str, str], Measure] = {
    ("05", "patches_moved"): patches_moved,
    ("07", "last_row"): last_changed_row,
    ("06", "frames_that_change"): frames_that_change,
    ("12", "numbers_without_gradient"): numbers_without_gradient,
    ("14", "largest_outside"): largest_outside,
    ("15", "first_with_a_graph"): first_with_a_graph,
    ("17", "unchanged_weights"): unchanged_weights,
    ("18", "wrong_sign_below"): wrong_sign_below,
    ("21", "finite_after_backward"): finite_after_backward,
    ("22", "breaks_at"): breaks_at,
    ("26", "mean_time"): mean_time,
    ("31", "patches_outside"): patches_outside,
    ("33", "moved"): moved_by_padding,
    ("27", "different_rows"): different_rows,
    ("35", "counted"): counted,
    ("36", "yellow"): yellow_in_training,
    ("43", "millimetres"): millimetres_of_another_plan,
    ("44", "second_episode"): second_episode,
    ("46", "closing_targets"): closing_targets_of_cell,
    ("47", "tenth_step"): tenth_movement,
    ("48", "pixels_moved"): pixels_moved,
    ("49", "first_difference"): first_other_output,
    ("24", "not_finite"): not_finite,
    ("53", "weight_ratio"): weight_ratio,
    ("54", "second_rate"): second_rate,
    ("62", "keeps_most"): keeps_most,
    ("64", "kept"): kept_images,
    ("71", "different_tables"): different_tables,
    ("72", "weight_at_the_kill"): weight_at_the_kill,
    ("81", "bytes_not_averaged"): bytes_not_averaged,
    ("82", "tensors_that_differ"): parameters_that_differ,
    ("92", "more_calls"): more_calls_for_three_robots,
    ("83", "sum_of_the_unused"): sum_of_the_unused,
    ("94", "first_loss"): first_loss,
    ("96", "eight_demonstrations"): loss_of_eight_demonstrations,
}


def _program(lab: Lab) -> str:
    return "policy.py" if (lab.folder / "policy.py").is_file() else lab.editable[0]


def test_every_question_is_measured_here() -> None:
    assert set(MEASURED) == set(ASKED)
    assert len({lab for lab, _ in ASKED}) >= 10


@pytest.mark.parametrize("key", MEASURED, ids="-".join)
def test_the_correct_answer_is_what_the_starter_measures(key: tuple[str, str]) -> None:
    lab, question = ASKED[key]
    measured = MEASURED[key](load_module(lab.folder / _program(lab)))
    assert refusal(question, correct_answers(lab)[question.id], measured) is None
