"""Templates of `policy.py`: the parts of a policy, each in several forms. A name such as `$Tower` is drawn by the seed.

Every form of a part has the same interface, so any combination is a program. Lines stay short: whatever names the seed
draws, the program is formatted as `ruff format` would.
"""

from __future__ import annotations

HEADER = '''"""$Task.

A camera image, an instruction and the joint state go in, a chunk of actions comes out.

Shapes: B frames, S pixels a side, L tokens, J joints, D features, H steps of a chunk, A numbers of an action.
Training reads `policy(**batch)`, a loss. The robot reads `policy.predict(...)`, actions in its own units.
Checkpoints of earlier runs are in use, so the names and shapes of the parameters stay as they are.
"""
'''

CONFIG = '''
IMAGE_SIZE, STATE_DIM, ACTION_DIM = 16, 5, 3


@dataclass(frozen=True)
class $Config:
    """Sizes of the model."""

    $width: int = $the_width
    $horizon: int = $the_horizon
    $dropout: float = 0.1
'''

PIXELS = {
    "centred": '''
def $prepare_image(image: Tensor) -> Tensor:
    """Images uint8 (B, rows, columns, 3) as numbers from -1 to 1, (B, 3, rows, columns)."""
    return image.permute(0, 3, 1, 2).float() / 127.5 - 1.0
''',
    "statistics": '''
PIXEL_MEAN, PIXEL_STD = 0.45, 0.25


def $prepare_image(image: Tensor) -> Tensor:
    """Images uint8 (B, rows, columns, 3), from 0 to 1, then standardised: (B, 3, rows, columns)."""
    scaled = image.permute(0, 3, 1, 2).float() / 255.0
    return (scaled - PIXEL_MEAN) / PIXEL_STD
''',
}

SCALERS = {
    "deviations": '''
class $Scaler(nn.Module):
    """Actions (..., A) in the robot's units to units of their standard deviation, and back."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def normalize(self, action: Tensor) -> Tensor:
        """The robot's units to normalised ones."""
        return (action - self.mean) / self.std

    def unnormalize(self, action: Tensor) -> Tensor:
        """Normalised units to the robot's."""
        return action * self.std + self.mean


def $fit_scaler(action: Tensor, action_is_pad: Tensor) -> $Scaler:
    """The statistics of each number of chunks (N, H, A), without padded steps. A number may be constant."""
    rows = action[~action_is_pad]  # (M, A)
    return $Scaler(rows.mean(dim=0), rows.std(dim=0).clamp(min=1e-3))
''',
    "range": '''
class $Scaler(nn.Module):
    """Actions (..., A) in the robot's units to the range from -1 to 1, and back."""

    def __init__(self, low: Tensor, span: Tensor) -> None:
        super().__init__()
        self.register_buffer("low", low)
        self.register_buffer("span", span)

    def normalize(self, action: Tensor) -> Tensor:
        """The robot's units to normalised ones."""
        return 2.0 * (action - self.low) / self.span - 1.0

    def unnormalize(self, action: Tensor) -> Tensor:
        """Normalised units to the robot's."""
        return (action + 1.0) / 2.0 * self.span + self.low


def $fit_scaler(action: Tensor, action_is_pad: Tensor) -> $Scaler:
    """The range of each number of chunks (N, H, A), without padded steps. A number may be constant."""
    rows = action[~action_is_pad]  # (M, A)
    low, high = rows.amin(dim=0), rows.amax(dim=0)
    return $Scaler(low, (high - low).clamp(min=1e-3))
''',
}

POLICY = '''
class $Policy(nn.Module):
    """The whole policy: `policy(**batch)` to train it, `policy.predict(...)` to act."""

    def __init__(self, config: $Config, $scaler: $Scaler) -> None:
        super().__init__()
        self.config = config
        self.$vision = $Tower(config)
        self.$language = $Text(config)
        self.$proprio = nn.Linear(STATE_DIM, config.$width)
        self.$fusion = $Fusion(config)
        self.$head = $Head(config)
        self.$scaler = $scaler

    def encode(self, image: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """One feature for each frame, (B, D)."""
        $seen = self.$vision($prepare_image(image))
        $told = self.$language(input_ids, attention_mask)
        $felt = self.$proprio(state)
        return self.$fusion($seen, $told, $felt)

    def forward(
        self,
        image: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        action: Tensor,
        action_is_pad: Tensor,
    ) -> Tensor:
        """The loss of a batch, a scalar."""
        feature = self.encode(image, input_ids, attention_mask, state)
        target = self.$scaler.normalize(action)
        return self.$head.loss(feature, target, action_is_pad)

    @torch.no_grad()
    def predict(self, image: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """A chunk of actions in the robot's units, (B, H, A). The mode of the policy stays as it is."""
        was_training = self.training
        self.eval()
        feature = self.encode(image, input_ids, attention_mask, state)
        $chunk = self.$scaler.unnormalize(self.$head.decode(feature))
        self.train(was_training)
        return $chunk
'''

_RUNNER_ACT = '''
    def act(self, image: Tensor, sentence: str, state: Tensor) -> Tensor:
        """The next action (A,), from an image (S, S, 3), the instruction and the state (J,)."""
'''

RUNNERS = {
    "queue": '''
class $Runner:
    """Acts on the robot: asks for a chunk, executes its first actions, then asks again."""

    def __init__(self, policy: $Policy, execute: int = 3) -> None:
        self.policy = policy
        self.execute = execute
        self.$queue: deque[Tensor] = deque()

    def reset(self) -> None:
        """A new episode begins."""
        self.$queue.clear()
'''
    + _RUNNER_ACT
    + """        if not self.$queue:
            input_ids, attention_mask = $tokenize([sentence])
            $chunk = self.policy.predict(image[None], input_ids, attention_mask, state[None])[0]
            self.$queue.extend($chunk[: self.execute])
        return self.$queue.popleft()
""",
    "ensemble": '''
class $Runner:
    """Acts on the robot: averages what the last chunks say about this step; `fading` is for each step of age."""

    def __init__(self, policy: $Policy, fading: float = 0.5) -> None:
        self.policy = policy
        self.fading = fading
        self.$queue: deque[Tensor] = deque(maxlen=policy.config.$horizon)

    def reset(self) -> None:
        """A new episode begins."""
        self.$queue.clear()
'''
    + _RUNNER_ACT
    + """        input_ids, attention_mask = $tokenize([sentence])
        $chunk = self.policy.predict(image[None], input_ids, attention_mask, state[None])[0]
        self.$queue.appendleft($chunk)
        votes = torch.stack([one[age] for age, one in enumerate(self.$queue)])  # (N, A)
        weight = self.fading ** torch.arange(len(votes))
        return (votes * weight[:, None]).sum(dim=0) / weight.sum()
""",
    "smooth": '''
class $Runner:
    """Acts on the robot: the first action of a new chunk, with a share `inertia` of the action before it."""

    def __init__(self, policy: $Policy, inertia: float = 0.4) -> None:
        self.policy = policy
        self.inertia = inertia
        self.last: Tensor | None = None

    def reset(self) -> None:
        """A new episode begins."""
        self.last = None
'''
    + _RUNNER_ACT
    + """        input_ids, attention_mask = $tokenize([sentence])
        $chunk = self.policy.predict(image[None], input_ids, attention_mask, state[None])[0]
        action = $chunk[0]
        if self.last is not None:
            action = self.inertia * self.last + (1.0 - self.inertia) * action
        self.last = action
        return action
""",
}
