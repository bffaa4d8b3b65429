"""How far the padding moves each row of patches, in the lab as shipped."""

# --8<-- [start:measure]
import torch

from labs.authoring.lab_module import load_module
from labs.grading.catalog import find
from labs.strip_cameras import original_base, seen_by
from labs.vla.dataset import demonstrations

lab = find("31")
embed = original_base(seed=31).vision.get_submodule("embeddings.patch_embedding")
image = seen_by("landscape", demonstrations(1, seed=31).image)[0]
with torch.no_grad():
    fixed, shipped = (
        embed(load_module(folder / "policy.py").prepare_image(image)[None])[0] for folder in (lab.solution, lab.folder)
    )  # (64, 4, 4) each
for row in range(4):
    moved = (shipped - fixed)[:, row].norm() / fixed[:, row].norm()
    print(f"patches {4 * row:2} to {4 * row + 3:2}: moved by {moved:4.0%} of their length")
# --8<-- [end:measure]
assert moved > 0.9
