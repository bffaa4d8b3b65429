"""Templates of `train.py`: data, optimizer, loop, evaluation and configuration, each in several forms."""

from __future__ import annotations

HEADER = '''"""Trains the $robot policy: data, optimizer, loop, evaluation, and the recipe that a run is started with.

A batch has `image` (B, S, S, 3), `input_ids` and `attention_mask` (B, L), `state` (B, J), `action` (B, H, A) and
`action_is_pad` (B, H), true for the steps after the end of an episode.
"""
'''

RECIPE = '''
Batch = dict[str, Tensor]


@dataclass(frozen=True)
class $Recipe:
    """How to train. The rates are for one update of the optimizer."""

    $rate: float = $the_rate
    $decay: float = 0.05
    $warmup: int = 3
    $steps: int = 24
    $max_norm: float = $the_norm
    shuffle: bool = True$more_fields
'''

READ_RECIPE = '''
def $read_recipe(file: Mapping[str, Any], command_line: Mapping[str, str]) -> $Recipe:
    """The recipe of a run: the command line wins over the file. Raises KeyError for an unknown name."""
    defaults = asdict($Recipe())
    given = {**file, **command_line}
    for name in given:
        if name not in defaults:
            raise KeyError(f"there is no setting {name}")
    return $Recipe(**{name: $convert(value, defaults[name]) for name, value in given.items()})


def $convert(value: Any, default: Any) -> Any:
    """A value that may be a text, as the type of the default."""
    if isinstance(default, bool):
        return str(value).lower() in ("true", "yes", "1")
    return type(default)(value)
'''

WINDOWS = {
    "zeros": '''
class $Windows(Dataset[Batch]):
    """Every frame of the episodes, with the chunk of actions that begins there."""

    def __init__(self, episodes: Sequence[Batch], horizon: int) -> None:
        self.episodes = episodes
        self.horizon = horizon
        lengths = [len(episode["action"]) for episode in episodes]
        self.index = [(row, start) for row, length in enumerate(lengths) for start in range(length)]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, item: int) -> Batch:
        row, start = self.index[item]
        episode = self.episodes[row]
        $chunk = episode["action"][start : start + self.horizon]
        missing = self.horizon - len($chunk)
        return {
            "image": episode["image"][start],
            "input_ids": episode["input_ids"],
            "attention_mask": episode["attention_mask"],
            "state": episode["state"][start],
            "action": F.pad($chunk, (0, 0, 0, missing)),
            "action_is_pad": torch.arange(self.horizon) >= len($chunk),
        }
''',
    "repeats": '''
class $Windows(Dataset[Batch]):
    """Every frame of the episodes, with the chunk of actions that begins there. The last action is repeated."""

    def __init__(self, episodes: Sequence[Batch], horizon: int) -> None:
        self.episodes = episodes
        self.horizon = horizon
        self.ends = list(accumulate(len(episode["action"]) for episode in episodes))

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, item: int) -> Batch:
        row = bisect_right(self.ends, item)
        episode = self.episodes[row]
        length = len(episode["action"])
        start = item - self.ends[row] + length
        when = torch.arange(start, start + self.horizon)
        return {
            "image": episode["image"][start],
            "input_ids": episode["input_ids"],
            "attention_mask": episode["attention_mask"],
            "state": episode["state"][start],
            "action": episode["action"][when.clamp(max=length - 1)],
            "action_is_pad": when >= length,
        }
''',
}

ORDER = '''
def $split(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Numbers of the training and of the validation episodes. No episode is in both."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator).tolist()
    held_out = round(share * count)
    return order[held_out:], order[:held_out]


def $epoch_order(length: int, seed: int, epoch: int) -> list[int]:
    """The order of the frames in one epoch, the same in every process."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    return torch.randperm(length, generator=generator).tolist()


def $rank_share(order: Sequence[int], rank: int, world_size: int) -> list[int]:
    """The frames of one process. Each process has as many: the first frames fill the gap."""
    missing = -len(order) % world_size
    return [*order, *order[:missing]][rank::world_size]
'''

COMBINE = '''
def $combine(losses: Sequence[float], frames: Sequence[int]) -> float:
    """The mean loss per frame, from mean loss and frames of every process; 0 if none has a frame."""
    total = sum(loss * count for loss, count in zip(losses, frames, strict=True))
    return total / max(1, sum(frames))
'''

OPTIMIZERS = {
    "matrices": '''
def $make_optimizer(policy: nn.Module, recipe: $Recipe) -> torch.optim.Optimizer:
    """AdamW. Matrices decay; vectors, such as biases and norms, do not."""
    matrices = [one for one in policy.parameters() if one.ndim > 1]
    vectors = [one for one in policy.parameters() if one.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": recipe.$decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.$rate, eps=1e-6)
''',
    "tower": '''
def $make_optimizer(policy: nn.Module, recipe: $Recipe) -> torch.optim.Optimizer:
    """AdamW. The image tower learns at a tenth of the rate."""
    tower = list(policy.$vision.parameters())
    slow = {id(one) for one in tower}
    rest = [one for one in policy.parameters() if id(one) not in slow]
    groups = [{"params": rest}, {"params": tower, "lr": 0.1 * recipe.$rate}]
    return torch.optim.AdamW(groups, lr=recipe.$rate, weight_decay=recipe.$decay, eps=1e-6)
''',
    "momentum": '''
def $make_optimizer(policy: nn.Module, recipe: $Recipe) -> torch.optim.Optimizer:
    """Gradient descent with momentum, ten times the rate."""
    return torch.optim.SGD(
        policy.parameters(),
        lr=10 * recipe.$rate,
        momentum=0.9,
        weight_decay=recipe.$decay,
    )
''',
}

_SCHEDULER = '''
def $make_scheduler(optimizer: torch.optim.Optimizer, recipe: $Recipe) -> LambdaLR:
    """{what}"""

    def factor(step: int) -> float:
        if step < recipe.$warmup:
            return (step + 1) / recipe.$warmup
{rest}
    return LambdaLR(optimizer, factor)
'''
_DONE = "        done = (step - recipe.$warmup) / max(1, recipe.$steps - recipe.$warmup)\n"

SCHEDULERS = {
    "cosine": _SCHEDULER.format(
        what="A linear warm-up that begins above zero, then half a cosine down to zero.",
        rest=_DONE + "        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))\n",
    ),
    "linear": _SCHEDULER.format(
        what="A linear warm-up that begins above zero, then a straight line down to zero.",
        rest=_DONE + "        return max(0.0, 1.0 - done)\n",
    ),
    "halving": _SCHEDULER.format(
        what="A linear warm-up that begins above zero, then half the rate after every four updates.",
        rest="        return 0.5 ** ((step - recipe.$warmup) // 4)\n",
    ),
}

_TRAINER = '''
class $Trainer:
    """Trains a policy on batches; `history` has the loss of each of them.$precision"""

    def __init__(self, policy: nn.Module, recipe: $Recipe) -> None:
        self.policy = policy
        self.recipe = recipe
        self.optimizer = $make_optimizer(policy, recipe)
        self.scheduler = $make_scheduler(self.optimizer, recipe)
        self.history: list[float] = []
{more_init}
    def run(self, batches: Iterable[Batch]) -> None:
        """Train on the batches, in their order."""
        self.policy.train()
        for batch in batches:
            self.step(batch)

    def step(self, batch: Batch) -> None:
        """{step_doc}"""
{step}
    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs to continue as if it had not been interrupted."""
        return {{
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "history": list(self.history),
{more_state}        }}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self.policy.load_state_dict(saved["policy"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        self.history = list(saved["history"])
{more_load}'''

LOSS = {
    "float32": "        loss = self.policy(**batch)\n",
    "bfloat16": (
        '        with torch.autocast("cpu", dtype=torch.bfloat16):\n            loss = self.policy(**batch)\n'
    ),
}
_CLIP = "nn.utils.clip_grad_norm_(self.policy.parameters(), self.recipe.$max_norm)"
_PLAIN = f"""        self.optimizer.zero_grad()
$loss        loss.backward()
        {_CLIP}
        self.optimizer.step()
        self.scheduler.step()
"""

TRAINERS = {
    "plain": _TRAINER.format(
        more_init="",
        step_doc="One update of the parameters.",
        step=_PLAIN + "        self.history.append(loss.item())\n",
        more_state="",
        more_load="",
    ),
    "accumulation": _TRAINER.format(
        more_init="",
        step_doc="One micro-batch. `micro_batches` of them give one update, with the mean of their gradients.",
        step=f"""$loss        (loss / self.recipe.micro_batches).backward()
        self.history.append(loss.item())
        if len(self.history) % self.recipe.micro_batches == 0:
            {_CLIP}
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
""",
        more_state="",
        more_load="",
    ),
    "average": _TRAINER.format(
        more_init="        self.average = copy.deepcopy(policy).eval()\n",
        step_doc="One update of the parameters, and of their running average.",
        step=_PLAIN
        + """        self.history.append(loss.item())
        self.update_average()

    @torch.no_grad()
    def update_average(self) -> None:
        \"\"\"Move the average towards the policy; it keeps the share `memory` of itself.\"\"\"
        for kept, now in zip(self.average.parameters(), self.policy.parameters(), strict=True):
            kept.lerp_(now, 1.0 - self.recipe.memory)
""",
        more_state='            "average": self.average.state_dict(),\n',
        more_load='        self.average.load_state_dict(saved["average"])\n',
    ),
}

MORE_FIELDS = {"plain": "", "accumulation": "\n    micro_batches: int = 2", "average": "\n    memory: float = 0.8"}

EVALUATE = '''
@torch.no_grad()
def $evaluate(policy: nn.Module, batches: Iterable[Batch]) -> float:
    """The mean loss per frame, without dropout. The mode of the policy stays as it is."""
    was_training = policy.training
    policy.eval()
    total, frames = 0.0, 0
    for batch in batches:
        size = len(batch["state"])
        total += policy(**batch).item() * size
        frames += size
    policy.train(was_training)
    return total / frames
'''
