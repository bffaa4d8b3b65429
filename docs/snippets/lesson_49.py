"""Lesson 49's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("49").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy
from policy import build_policy

PARTS = ("language_model.embed_tokens", "vision", "projector", "language_model", "head")
batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))


def outputs(policy):
    seen = {}
    for part in PARTS:
        policy.get_submodule(part).register_forward_hook(
            lambda _module, _inputs, out, part=part: seen.update({part: getattr(out, "last_hidden_state", out)})
        )
    policy.eval().predict(batch)
    return seen


without, instructed = outputs(Policy.from_base(seed=0)), outputs(build_policy(seed=0))
for part in PARTS:
    difference = (instructed[part] - without[part]).norm() / without[part].norm()
    print(f"{part:<28} differs by {difference:5.0%}")
# --8<-- [end:measure]
assert (instructed["vision"] - without["vision"]).norm() > 0.5 * without["vision"].norm()
sys.path.pop(0)
