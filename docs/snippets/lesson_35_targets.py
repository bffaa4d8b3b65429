"""Lesson 35's second measurement: which positions of a text have a target, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("35").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

from labs.vla.dataset import demonstrations
from policy import build_policy, collate_texts, text_batch

# --8<-- [start:targets]
texts = ["o 0 4", "c -12 30", "o 100 -100"]
observation = {name: value for name, value in text_batch(demonstrations(3, seed=35)).items() if "text" not in name}
output = build_policy(seed=35)(**observation, **collate_texts(texts))
output.logits.retain_grad()
output.loss.backward()
for text, gradient in zip(texts, output.logits.grad, strict=True):
    tokens = ["<bos>", *text, "<end>", *["."] * 9]
    marks = ["has a target" if position.any() else "none" for position in gradient]
    for position in range(len(text) - 1, len(text) + 2):
        print(f"{text:10}  position {position:2}, after {tokens[position]!r:7} {marks[position]}")
# --8<-- [end:targets]
assert [int(gradient.any(dim=-1).sum()) for gradient in output.logits.grad] == [len(text) for text in texts]
sys.path.pop(0)
