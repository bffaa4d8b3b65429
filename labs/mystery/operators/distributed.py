"""Faults of several processes."""

from __future__ import annotations

from labs.mystery.operators.operator import TRAIN, Edit, Operator

DISTRIBUTED = (
    Operator(
        "rest_never_visited",
        "distributed",
        2,
        "DK805",
        "processes",
        "order",
        "With more processes some frames are never trained on.",
        "The frames that do not divide evenly are dropped.",
        (
            Edit(
                TRAIN,
                "    missing = -len(order) % world_size\n    return [*order, *order[:missing]][rank::world_size]",
                "    length = len(order) // world_size\n    return list(order[rank::world_size])[:length]",
            ),
        ),
    ),
    Operator(
        "frames_visited_twice",
        "distributed",
        2,
        "DK805",
        "processes",
        "order",
        "With more processes an epoch takes as long as before.",
        "The processes visit the same frames.",
        (Edit(TRAIN, "[*order, *order[:missing]][rank::world_size]", "[*order, *order[:missing]][::world_size]"),),
    ),
    Operator(
        "one_process_waits",
        "distributed",
        2,
        "DK804",
        "processes",
        "order",
        "The last step of an epoch never ends: one process waits for another.",
        "The processes have different numbers of frames, so one makes a step more than the others.",
        (
            Edit(
                TRAIN,
                "    missing = -len(order) % world_size\n    return [*order, *order[:missing]][rank::world_size]",
                "    return list(order[rank::world_size])",
            ),
        ),
    ),
    Operator(
        "unweighted_processes",
        "distributed",
        2,
        "DK805",
        "processes",
        "combine",
        "The reported loss depends on how the frames are spread over the processes.",
        "The means of the processes are averaged as if each had as many frames.",
        (
            Edit(
                TRAIN,
                "    total = sum(loss * count for loss, count in zip(losses, frames, strict=True))\n    return total / max(1, sum(frames))",
                "    counted = [loss for loss, count in zip(losses, frames, strict=True) if count]\n    return sum(counted) / max(1, len(counted))",
            ),
        ),
    ),
    Operator(
        "process_without_frames",
        "distributed",
        1,
        "DK804",
        "processes",
        "combine",
        "A process without a frame stops the whole evaluation.",
        "The number of frames can be zero, and the sum is divided by it.",
        (Edit(TRAIN, "return total / max(1, sum(frames))", "return total / sum(frames)"),),
    ),
)
