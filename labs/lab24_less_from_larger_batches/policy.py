"""One policy for rigs with different cameras: each gripper camera is read into one token by cross-attention.

    pixel_values, the overhead camera ─ SigLIP ─ projector ────────── patches (B, P, D) ─┐
    views, gripper cameras ──────────── SigLIP ─ (B, K, P, V) ─┐                         │
    which patches show something ─────────────── (B, K, P) ────┼─ reader ─ (B, K, D) ────┼─ Llama ─ last token ─ head
    state ───────────────────────────── token ── (B, D) ───────┘                         │
    instruction, state ──────────────────────────────────────────────────────────────────┘

Rigs differ: a gripper camera may be mounted or not, and images of another aspect ratio have bars at the sides.
`shows` (B, K, P) is False for the patches of a bar, and for all patches of a camera that is not mounted.

Notable choices
- A patch that shows nothing has no influence on the action, and gets no gradient.
- A camera that is not mounted is represented by a learned token, `absent`, one for each camera.
- The state asks: what matters in a gripper's view depends on where the gripper is.
- Every frame teaches the policy: each weight's gradient is that of the mean loss of the batch, whichever cameras the
  frames have. Frames of two cameras and of none may be in one batch.
- `train_step` clips the gradient, and leaves the weights as they are where its norm is not finite, as a gradient scaler
  does: one corrupt recording must not end a run of weeks.
- A checkpoint holds the reader under these names: `camera`, `absent`, `norm`, `query`, `key`, `value`, `out`. Some
  checkpoints have sharp attention, with scores in the hundreds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labs.vla.dataset import Batch
from labs.vla.policy import Policy, PolicyConfig, PolicyOutput

CAMERAS = 2
HEADS = 4
MAX_GRADIENT_NORM = 1.0


class CameraReader(nn.Module):
    """Attends to the patches of each camera; returns one token per camera, (B, K, D), in any dtype and any V and D."""

    def __init__(self, vision_width: int, width: int, cameras: int = CAMERAS) -> None:
        super().__init__()
        self.camera = nn.Parameter(torch.randn(cameras, width) / width**0.5)
        self.absent = nn.Parameter(torch.randn(cameras, width) / width**0.5)
        self.norm = nn.LayerNorm(vision_width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(vision_width, width, bias=False)  # a bias would change no weight of the attention
        self.value = nn.Linear(vision_width, width)
        self.out = nn.Linear(width, width)

    def forward(self, asker: Tensor, patches: Tensor, shows: Tensor) -> Tensor:
        """Tokens (B, K, D) for a question (B, D), patches (B, K, P, V) and which of them show something (B, K, P)."""
        patches = self.norm(patches)
        query = split_heads(self.query(asker[:, None] + self.camera))  # (B, K, N, E)
        key = split_heads(self.key(patches))  # (B, K, P, N, E)
        value = split_heads(self.value(patches))  # (B, K, P, N, E)
        scores = torch.einsum("bkne,bkpne->bknp", query, key) / key.shape[-1] ** 0.5
        weights = (scores + additive_mask(shows, scores.dtype)[:, :, None]).softmax(dim=-1)  # (B, K, N, P)
        read = torch.einsum("bknp,bkpne->bkne", weights, value).flatten(2)  # (B, K, D)
        return torch.where(is_mounted(shows)[..., None], self.out(read), self.absent)


def split_heads(x: Tensor) -> Tensor:
    """The width of each head as an axis of its own, (..., D) to (..., N, E)."""
    return x.unflatten(-1, (HEADS, -1))


def additive_mask(shows: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of patches, same shape as `shows`: 0, or -inf for a patch that shows nothing."""
    return torch.zeros_like(shows, dtype=dtype).masked_fill(~shows, float("-inf"))


def is_mounted(shows: Tensor) -> Tensor:
    """Whether a camera shows anything, (B, K, P) to (B, K)."""
    return shows.any(dim=-1)


class RigPolicy(Policy):
    """The base policy with a token for each gripper camera; `policy(**batch).loss` trains it."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.reader = CameraReader(self.config.vision_width, self.config.width)

    def forward(
        self,
        views: Tensor,
        shows: Tensor,
        action: Tensor | None = None,
        action_is_pad: Tensor | None = None,
        **observation: Tensor,
    ) -> PolicyOutput:
        """The predicted chunk; or the training loss, if `action` (B, H, A) and `action_is_pad` (B, H) are given.

        `views` is (B, K, 3, 64, 64), `shows` (B, K, P); the observation is that of `labs.vla`.
        """
        feature = self.encode_rig(views, shows, **observation)
        if action is None:
            return PolicyOutput(action=self.decode(feature))
        return PolicyOutput(loss=self.loss(feature, action, action_is_pad))

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """The action chunk (B, H, A) for observations, without a graph; ignores the batch's actions."""
        return self(**{name: value for name, value in batch.items() if not name.startswith("action")}).action

    def encode_rig(
        self,
        views: Tensor,
        shows: Tensor,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
    ) -> Tensor:
        """The feature that the head reads, (B, D)."""
        patches = self.vision(pixel_values=views.flatten(0, 1)).last_hidden_state  # (B K, P, V)
        asker = self.embed_state(state)[:, 0]  # (B, D)
        tokens = self.reader(asker, patches.unflatten(0, views.shape[:2]), shows)  # (B, K, D)
        images = torch.cat([self.embed_images(pixel_values), tokens], dim=1)
        embeddings, mask = self.join_prefix(images, input_ids, attention_mask, state)
        return self.run_language_model(embeddings, mask)[:, -1]


def build_policy(seed: int = 0) -> RigPolicy:
    """The pretrained base with a fresh reader and head, drawn from `seed`."""
    return RigPolicy.from_base(seed=seed)


def build_optimizer(policy: Policy) -> torch.optim.Optimizer:
    """AdamW over all parameters."""
    return torch.optim.AdamW(policy.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)


def train_step(policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One update in the policy's current mode; returns its loss. A step whose gradient is not finite is left out."""
    loss = policy(**batch).loss
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
    if torch.isfinite(norm):
        optimizer.step()
    return loss.item()
