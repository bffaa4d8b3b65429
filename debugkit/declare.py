"""What a person can state about their model that no tool can infer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Pair = tuple[Callable[..., Any], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Declare:
    """Facts about a model and its batch. All are optional; each makes one more rule exact, or lets it run at all.

    Keys name entries of the batch; patterns are shell-style (`vision.*`) and match parameter names.
    """

    padding_mask: str | None = None
    """Key of the padding mask (1 or True where content is valid); otherwise `attention_mask` is looked for."""
    causal: bool | None = None
    """True if no position may see a later one; None leaves it to what the labels show."""
    labels: str | None = None
    """Key of the target token ids; otherwise `labels` is looked for."""
    target: str | None = None
    """Key of the target action; otherwise `action` and `actions` are looked for."""
    modalities: Sequence[str] = ()
    """Keys of the inputs that must matter to the output."""
    future: Sequence[str] = ()
    """Keys that hold frames later than the decision, or parts of windows (`state[1:]`, by time step in dimension 1);
    inference must not depend on them."""
    coupled_batch: bool = False
    """True if samples of a batch are meant to influence each other (contrastive losses, in-batch negatives)."""
    trainable: Sequence[str] | None = None
    """Patterns of the parameters that should train; every other one should stay frozen."""
    normaliser: Pair | None = None
    """`(normalise, unnormalise)`; otherwise such a pair is looked for by name on every submodule."""
    action_tokens: Pair | None = None
    """`(encode, decode)` between continuous actions and token ids; otherwise looked for by name."""
    training_path: Callable[..., Any] | None = None
    """Raw frame → model inputs as training prepares them."""
    serving_path: Callable[..., Any] | None = None
    """Raw frame → model inputs as the robot prepares them."""
    raw_frame: Any = None
    """One raw frame, to send down both paths."""
    inference: Callable[..., Any] | None = None
    """`inference(model, batch) -> action`, as the robot calls it; otherwise `model.predict(batch)` if there is one."""
    reset: Callable[..., Any] | None = None
    """`reset(model)` between episodes; otherwise `model.reset()` if there is one."""
    checkpoint: Any = None
    """What the model was loaded from: a path (`.safetensors`, `.pt`) or a state dict."""
    fresh: Sequence[str] = ()
    """Patterns of the tensors that are new and rightly not in the checkpoint."""
    pretrained: bool = False
    """True if weights were loaded, so that the loss at the start says nothing about the initialisation."""
    memory_budget: int | None = None
    """Bytes that a training step may need at its peak; otherwise all of the GPU the model is on."""
    accumulation: int | None = None
    """Micro-batches for each optimizer step; the loop divides each one's loss by it, or `loss_fn` does what it does."""
    all_optimizers: bool = True
    """False if parameters are also trained by an optimizer that was not passed in."""
