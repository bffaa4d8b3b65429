"""Facts about a model that you can declare because debugkit cannot infer them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Pair = tuple[Callable[..., Any], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Declare:
    """Facts about a model and its batch. All are optional. Each makes a rule more exact or allows it to run.

    Keys name entries of the batch; patterns are shell-style (`vision.*`) and match parameter names.
    """

    padding_mask: str | None = None
    """Key of the padding mask (1 or True where content is valid); by default `attention_mask`, or an entry with pad,
    mask or valid in its name that marks where another entry is constant."""
    causal: bool | None = None
    """True if no position may attend to a later one. None infers it from the labels."""
    labels: str | None = None
    """Key of the target token ids; by default `labels`."""
    target: str | None = None
    """Key of the target action; by default `action` or `actions`."""
    modalities: Sequence[str] = ()
    """Keys of the inputs that must influence the output."""
    future: Sequence[str] = ()
    """Keys that hold frames later than the decision, or parts of windows (`state[1:]`, by time step in dimension 1);
    inference must not depend on them."""
    coupled_batch: bool = False
    """True if samples of a batch are meant to influence each other (contrastive losses, in-batch negatives)."""
    trainable: Sequence[str] | None = None
    """Patterns of the parameters that should train; every other one should stay frozen."""
    normaliser: Pair | None = None
    """`(normalise, unnormalise)`; by default debugkit searches every submodule for such a pair by name."""
    action_tokens: Pair | None = None
    """`(encode, decode)` between continuous actions and token ids; by default debugkit searches by name."""
    training_path: Callable[..., Any] | None = None
    """Raw frame → model inputs, as in training."""
    serving_path: Callable[..., Any] | None = None
    """Raw frame → model inputs, as on the robot."""
    raw_frame: Any = None
    """One raw frame, which is passed through both paths."""
    inference: Callable[..., Any] | None = None
    """`inference(model, batch) -> action`, as called on the robot; by default `model.predict(batch)` if it exists."""
    reset: Callable[..., Any] | None = None
    """`reset(model)`, called between episodes; by default `model.reset()` if it exists."""
    controller: Callable[..., Any] | None = None
    """`controller(predict) -> act`, what is between the policy's plans and the robot: a queue of actions, an ensemble.
    `predict(batch)` returns plans (B, H, A), and `act(batch)`, called once a step, the actions to execute."""
    checkpoint: Any = None
    """The checkpoint that the model was loaded from: a path (`.safetensors`, `.pt`) or a state dict."""
    fresh: Sequence[str] = ()
    """Patterns of the new tensors that are not expected in the checkpoint."""
    pretrained: bool = False
    """True if weights were loaded. The initial loss then gives no information about the initialisation."""
    memory_budget: int | None = None
    """Peak memory in bytes that a training step may use; by default all memory of the model's GPU."""
    accumulation: int | None = None
    """Micro-batches per optimizer step. `loss_fn`, or the loop, divides the loss of each micro-batch by this number."""
    all_optimizers: bool = True
    """False if parameters are also trained by an optimizer that was not passed in."""
