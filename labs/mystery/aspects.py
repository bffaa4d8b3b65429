"""What is compared with the healthy program: one aspect is one check of the grade.

Both programs are measured by the same probe on the same random input, the submission in the child and the healthy
program in the grader. An aspect compares what a program does, within a tolerance that another way to compute the same
needs; it knows neither the fault nor how it should be fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labs.grading.declarations import Kind
from labs.grading.rng import Rng
from labs.mystery import inputs
from labs.mystery.inputs import Facts


@dataclass(frozen=True)
class Aspect:
    """One comparison. `inputs` gives the arguments of the probe of the same name."""

    id: str
    kind: Kind
    title: str
    property: str
    instrument: str
    inputs: Callable[[Rng, Facts], dict[str, Any]]
    rtol: float = 1e-3
    atol: float = 1e-4
    rounds: bool = False
    """Whether its values depend on the precision of training."""

    def tolerance(self, facts: Facts) -> tuple[float, float]:
        """Relative and absolute."""
        return (3e-2, 3e-3) if self.rounds and facts.coarse else (self.rtol, self.atol)


_CHECK = "debugkit.check(policy, batch, lambda policy, batch: policy(**batch), optimizer)"
ASPECTS: tuple[Aspect, ...] = (
    Aspect(
        "checkpoint",
        "invariant",
        "Earlier checkpoints load, and every parameter trains",
        "The policy must have the parameters and statistics of earlier checkpoints under their names, and train all of them.",
        "policy.load_state_dict(state)",
        inputs.checkpoint_inputs,
    ),
    Aspect(
        "tokens",
        "behaviour",
        "Instructions become the right ids and masks",
        "A sentence must become the ids that the tokenizer states, cut at the length, with a mask that is 1 for each of them and 0 for padding.",
        "lab run mystery",
        inputs.tokens_inputs,
    ),
    Aspect(
        "scaling",
        "behaviour",
        "Actions are scaled by the statistics of real steps, and back",
        "The scale must come from the steps that are not padding, be finite for a constant number, and be undone exactly.",
        f"{_CHECK[:-1]}, select=['DK4'])",
        inputs.scaling_inputs,
    ),
    Aspect(
        "data",
        "behaviour",
        "Every frame has its own observation and the chunk that begins there",
        "A frame must have the observation of its moment, the actions from that moment on, and padding only after the end of the episode.",
        "lab run mystery",
        inputs.data_inputs,
    ),
    Aspect(
        "order",
        "behaviour",
        "Epochs, processes and the split visit the right frames",
        "Each epoch must visit every frame once in a new order that its seed repeats, the processes must share it evenly, and no episode may be in both parts.",
        "lab run mystery",
        inputs.order_inputs,
    ),
    Aspect(
        "outputs",
        "behaviour",
        "Loss and actions equal the healthy policy's",
        "With the values of one checkpoint, loss and chunk must be those of the healthy policy, at every batch size and amount of padding.",
        "debugkit.trace_shapes(policy, batch)",
        inputs.outputs_inputs,
        atol=1e-3,
    ),
    Aspect(
        "gradients",
        "behaviour",
        "Every parameter has the right gradient",
        "One backward in training mode must give every parameter the gradient that it has in the healthy policy.",
        f"{_CHECK[:-1]}, select=['DK1'])",
        inputs.one_batch,
        rtol=5e-3,
    ),
    Aspect(
        "modes",
        "invariant",
        "Dropout trains, evaluation is repeatable, and acting leaves no trace",
        "Dropout must be active in training mode and only there, and `predict` must keep the mode and record no graph.",
        _CHECK,
        inputs.one_batch,
    ),
    Aspect(
        "optimizer",
        "invariant",
        "The optimizer holds every parameter once, at its rate",
        "Every parameter must be in one group of the optimizer, with the rate and the decay that the program states.",
        _CHECK,
        inputs.nothing,
        rtol=1e-4,
        atol=1e-9,
    ),
    Aspect(
        "training",
        "behaviour",
        "Eight batches train as in the healthy program",
        "The losses, the rate of every update and what the updates change must be those of the healthy program.",
        _CHECK,
        inputs.training_inputs,
        rtol=1e-2,
        rounds=True,
    ),
    Aspect(
        "precision",
        "invariant",
        "Training computes in the intended precision",
        "Linear layers must compute in the dtype that the loop asks for, and parameters stay in float32.",
        f"{_CHECK[:-1]}, select=['DK2'])",
        inputs.memory_inputs,
    ),
    Aspect(
        "evaluation",
        "behaviour",
        "Validation gives the mean loss per frame and changes nothing",
        "Validation must weigh every frame alike, without dropout and without a graph, and leave mode, buffers and random numbers as they are.",
        "lab run mystery",
        inputs.evaluation_inputs,
    ),
    Aspect(
        "serving",
        "behaviour",
        "The robot executes what the policy predicts",
        "Each action must come from the frame, the instruction and the plan of its own episode, in the right order.",
        "lab run mystery",
        inputs.serving_inputs,
        atol=1e-3,
    ),
    Aspect(
        "resume",
        "behaviour",
        "A resumed run continues as if it had not stopped",
        "A run that is saved and continued in a new process must have the losses of one that was not interrupted.",
        "lab run mystery",
        inputs.resume_inputs,
        rtol=1e-2,
        rounds=True,
    ),
    Aspect(
        "memory",
        "invariant",
        "Nothing of a step is kept after it",
        "What the program holds must not grow with the number of steps.",
        f"{_CHECK[:-1]}, select=['DK6'])",
        inputs.memory_inputs,
    ),
    Aspect(
        "recipe",
        "behaviour",
        "A setting has the value and type that it was given",
        "The command line must win over the file, texts must become the type of the default, and an unknown name must be refused.",
        "lab run mystery",
        inputs.recipe_inputs,
        rtol=1e-6,
        atol=1e-9,
    ),
    Aspect(
        "combine",
        "behaviour",
        "The loss over all processes weighs every frame alike",
        "The combined loss must be the mean over the frames of all processes, also if one of them has none.",
        "lab run mystery",
        inputs.combine_inputs,
    ),
)
BY_ID = {one.id: one for one in ASPECTS}
