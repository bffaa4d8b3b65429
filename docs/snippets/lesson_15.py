"""Lesson 15's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("15").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from collections import Counter

from labs.vla.dataset import batches, demonstrations
from policy import build_policy

batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
print("recompute   mode           vision   language model   head    first layer runs")
for recompute, training in ((True, True), (False, True), (True, False)):
    policy = build_policy(seed=0, recompute=recompute).train(training)
    runs = []
    policy.vision.encoder.layers[0].self_attn.register_forward_pre_hook(lambda *_, runs=runs: runs.append(1))
    policy(**batch).loss.backward()
    trained = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
    parts = Counter(name.split(".")[0] for name in trained)
    found = Counter(name.split(".")[0] for name, parameter in trained.items() if parameter.grad is not None)
    vision, language, head = (f"{found[part]} of {parts[part]}" for part in ("vision", "language_model", "head"))
    mode = "training" if training else "evaluation"
    print(f"{recompute!s:9}   {mode:12} {vision:>8}   {language:>14}   {head:>6}   {len(runs):>16}")
# --8<-- [end:measure]
assert not found.keys() ^ parts.keys()
sys.path.pop(0)
