"""Faults of memory: what is kept too long."""

from __future__ import annotations

from labs.mystery.operators.operator import POLICY, TRAIN, Edit, Operator

_HISTORY = "        self.history: list[float] = []\n"
_SMOOTHED = _HISTORY + "        self.smoothed = torch.zeros(())\n"

MEMORY = (
    Operator(
        "losses_with_graphs",
        "memory",
        2,
        "DK601",
        "loop",
        "memory",
        "Memory grows a little after every step, until there is none.",
        "The history keeps the losses as tensors, and each keeps the graph of its step.",
        (Edit(TRAIN, "self.history.append(loss.item())", "self.history.append(loss)"),),
    ),
    Operator(
        "validation_with_graphs",
        "memory",
        2,
        "DK603",
        "evaluation",
        "evaluation",
        "Validation needs more memory than training.",
        "Validation records an autograd graph that nobody uses.",
        (Edit(TRAIN, "@torch.no_grad()\ndef $evaluate(", "def $evaluate("),),
    ),
    Operator(
        "actions_with_graphs",
        "memory",
        2,
        "lab62",
        "policy",
        "modes",
        "On the robot, memory is used for graphs that nobody needs.",
        "Asking for an action records an autograd graph.",
        (Edit(POLICY, "    @torch.no_grad()\n    def predict(", "    def predict("),),
    ),
    Operator(
        "batches_kept",
        "memory",
        2,
        "DK602",
        "loop",
        "memory",
        "Memory grows by the size of a batch with every step.",
        "Every batch is kept in a list that nobody empties.",
        (
            Edit(
                TRAIN,
                "            self.step(batch)\n",
                "            self.step(batch)\n            self.recent.append(batch)\n",
                ((_HISTORY, _HISTORY + "        self.recent: list[Batch] = []\n"),),
            ),
        ),
    ),
    Operator(
        "graph_used_twice",
        "memory",
        1,
        "DK601",
        "loop",
        "training",
        "The second step raises an error about a graph that was already freed.",
        "The losses of all steps are added up as tensors, so the second backward goes through the first graph again.",
        (
            Edit(
                TRAIN,
                "        loss.backward()\n",
                "        self.smoothed = 0.5 * self.smoothed + loss\n        self.smoothed.backward()\n",
                ((_HISTORY, _SMOOTHED),),
            ),
            Edit(
                TRAIN,
                "        (loss / self.recipe.micro_batches).backward()\n",
                "        self.smoothed = 0.5 * self.smoothed + loss\n        (self.smoothed / self.recipe.micro_batches).backward()\n",
                ((_HISTORY, _SMOOTHED),),
            ),
        ),
    ),
    Operator(
        "frames_kept_on_the_robot",
        "memory",
        2,
        "DK602",
        "runner",
        "serving",
        "After a day on the robot the memory is full.",
        "The class that acts keeps every image that it was given.",
        tuple(
            Edit(
                POLICY,
                'state (J,)."""\n',
                'state (J,)."""\n        self.frames.append(image)\n',
                ((line, line + "        self.frames: list[Tensor] = []\n"),),
            )
            for line in (
                "        self.execute = execute\n",
                "        self.fading = fading\n",
                "        self.inertia = inertia\n",
            )
        ),
    ),
)
