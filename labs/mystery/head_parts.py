"""Templates of `policy.py`: the forms of what joins the features, and of the head with its loss."""

from __future__ import annotations

FUSIONS = {
    "concat": '''
class $Fusion(nn.Module):
    """Image, instruction and state, each (B, D), joined in this order, to one feature (B, D).

    Two layers with a GELU between them.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.first = nn.Linear(3 * config.$width, 2 * config.$width)
        self.second = nn.Linear(2 * config.$width, config.$width)
        self.drop = nn.Dropout(config.$dropout)

    def forward(self, $seen: Tensor, $told: Tensor, $felt: Tensor) -> Tensor:
        joined = torch.cat([$seen, $told, $felt], dim=-1)  # (B, 3 D)
        hidden = F.gelu(self.first(joined))
        return self.second(self.drop(hidden))
''',
    "film": '''
class $Fusion(nn.Module):
    """Image, instruction and state, each (B, D), to one feature (B, D).

    Image and state are joined in this order; the instruction scales and shifts.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.condition = nn.Linear(config.$width, 2 * config.$width)
        self.join = nn.Linear(2 * config.$width, config.$width)
        self.norm = nn.LayerNorm(config.$width)
        self.drop_rate = config.$dropout

    def forward(self, $seen: Tensor, $told: Tensor, $felt: Tensor) -> Tensor:
        scale, shift = self.condition($told).chunk(2, dim=-1)
        hidden = self.join(torch.cat([$seen, $felt], dim=-1))  # (B, D)
        hidden = F.gelu(self.norm(hidden) * (1.0 + scale) + shift)
        return F.dropout(hidden, self.drop_rate, self.training)
''',
    "gate": '''
class $Fusion(nn.Module):
    """Image, instruction and state, each (B, D), to one feature (B, D).

    The instruction opens gates: 1 takes the image, 0 the state. A layer with a GELU then adds to what is mixed.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.$width, config.$width)
        self.inner = nn.Linear(config.$width, config.$width)
        self.drop = nn.Dropout(config.$dropout)

    def forward(self, $seen: Tensor, $told: Tensor, $felt: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate($told))  # (B, D)
        mixed = gate * $seen + (1.0 - gate) * $felt
        hidden = F.gelu(self.inner(mixed) + $told)
        return mixed + self.drop(hidden)
''',
}

HEADS = {
    "smooth": '''
class $Head(nn.Module):
    """Predicts a chunk in normalised units, (B, H, A), from the feature (B, D), one step after the other."""

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.horizon = config.$horizon
        self.out = nn.Linear(config.$width, config.$horizon * ACTION_DIM)

    def decode(self, feature: Tensor) -> Tensor:
        """The chunk, (B, H, A)."""
        return self.out(feature).unflatten(-1, (self.horizon, ACTION_DIM))

    def loss(self, feature: Tensor, target: Tensor, action_is_pad: Tensor) -> Tensor:
        """Smooth L1, a mean over the steps that are part of the episode."""
        $error = F.smooth_l1_loss(self.decode(feature), target, reduction="none").mean(dim=-1)
        $keep = (~action_is_pad).float()  # (B, H)
        return ($error * $keep).sum() / $keep.sum()
''',
    "gaussian": '''
class $Head(nn.Module):
    """Predicts mean and spread of a chunk in normalised units, both (B, H, A), from the feature (B, D).

    The layer gives one step after the other, and for each step first the means.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.horizon = config.$horizon
        self.out = nn.Linear(config.$width, 2 * config.$horizon * ACTION_DIM)

    def moments(self, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the standard deviation, both (B, H, A); the logarithm is from -4 to 2."""
        both = self.out(feature).unflatten(-1, (self.horizon, 2 * ACTION_DIM))
        mean, log_std = both.chunk(2, dim=-1)
        return mean, log_std.clamp(-4.0, 2.0)

    def decode(self, feature: Tensor) -> Tensor:
        """The mean, (B, H, A)."""
        return self.moments(feature)[0]

    def loss(self, feature: Tensor, target: Tensor, action_is_pad: Tensor) -> Tensor:
        """Negative log-likelihood, a mean over the steps that are part of the episode."""
        mean, log_std = self.moments(feature)
        $error = 0.5 * ((target - mean) / log_std.exp()).square() + log_std  # (B, H, A)
        $keep = (~action_is_pad).float()  # (B, H)
        return ($error.mean(dim=-1) * $keep).sum() / $keep.sum()
''',
    "bins": '''
BINS, LIMIT = 16, 3.0


class $Head(nn.Module):
    """Predicts a distribution over 16 bins for each number of a chunk, from the feature (B, D)."""

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.horizon = config.$horizon
        self.out = nn.Linear(config.$width, config.$horizon * ACTION_DIM * BINS)

    def logits(self, feature: Tensor) -> Tensor:
        """Scores of the bins, (B, H, A, BINS)."""
        return self.out(feature).unflatten(-1, (self.horizon, ACTION_DIM, BINS))

    def decode(self, feature: Tensor) -> Tensor:
        """The centre of the likeliest bin, (B, H, A)."""
        index = self.logits(feature).argmax(dim=-1)
        return (index.float() + 0.5) * (2 * LIMIT / BINS) - LIMIT

    def loss(self, feature: Tensor, target: Tensor, action_is_pad: Tensor) -> Tensor:
        """Cross-entropy, a mean over the steps that are part of the episode."""
        index = ((target + LIMIT) / (2 * LIMIT / BINS)).long().clamp(0, BINS - 1)
        scores = self.logits(feature).permute(0, 3, 1, 2)  # (B, BINS, H, A)
        $error = F.cross_entropy(scores, index, reduction="none").mean(dim=-1)  # (B, H)
        $keep = (~action_is_pad).float()  # (B, H)
        return ($error * $keep).sum() / $keep.sum()
''',
    "gripper": '''
class $Head(nn.Module):
    """Predicts a chunk of motions and one decision to close the gripper, from the feature (B, D)."""

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.horizon = config.$horizon
        self.motion = nn.Linear(config.$width, config.$horizon * (ACTION_DIM - 1))
        self.gripper = nn.Linear(config.$width, 1)

    def decode(self, feature: Tensor) -> Tensor:
        """The motions with the decision, +1 or -1, at every step: (B, H, A)."""
        motion = self.motion(feature).unflatten(-1, (self.horizon, ACTION_DIM - 1))
        closes = torch.where(self.gripper(feature) > 0, 1.0, -1.0)  # (B, 1)
        return torch.cat([motion, closes[:, None].expand(-1, self.horizon, 1)], dim=-1)

    def loss(self, feature: Tensor, target: Tensor, action_is_pad: Tensor) -> Tensor:
        """L1 of the motions, over the steps that are part of the episode, and a logistic loss."""
        motion = self.motion(feature).unflatten(-1, (self.horizon, ACTION_DIM - 1))
        $error = F.l1_loss(motion, target[..., :-1], reduction="none").mean(dim=-1)  # (B, H)
        $keep = (~action_is_pad).float()  # (B, H)
        closes = torch.where(target[:, 0, -1] > 0, 1.0, -1.0)  # (B,)
        logit = self.gripper(feature).squeeze(-1)  # (B,)
        grip = F.softplus(-closes * logit).mean()
        return ($error * $keep).sum() / $keep.sum() + grip
''',
}
