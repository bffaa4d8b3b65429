"""Tests whether the loss shifts the labels: changes the first label of each row, which a shifting loss does not use."""

from __future__ import annotations

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import labels, token_ids
from debugkit.interventions.passes import evaluate, floor
from debugkit.measurements.label_alignment import LabelAlignment
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors


def change_the_first_label(setup: TrainingSetup) -> LabelAlignment:
    """One pass with other first labels and one without. A loss that does not read them is bit for bit the same."""
    alignment = align(setup)
    before = float(floor(setup, output_needed=False)[0].loss)
    found, ids = labels(setup), token_ids(setup)
    assert found is not None
    assert ids is not None  # align() checked both
    path, label = found
    other = torch.where(ids[1][:, 0] == label[:, 0], ids[1][:, -1], ids[1][:, 0])
    if bool((other == label[:, 0]).all()):
        raise NotExamined("The first token of each row equals its last one, so there is no other first label to try.")

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name == path:
            tensor[:, 0] = other.to(tensor)
        return tensor

    changed = map_tensors(setup.fresh_batch(), change)
    after, again = (float(evaluate(setup, batch, output_needed=False).loss) for batch in (changed, None))
    return LabelAlignment(
        supervised=alignment.supervised,
        labels_are_ids=alignment.labels_are_ids,
        labels_are_next_ids=alignment.labels_are_next_ids,
        loss_shifts=abs(after - before) <= 10 * abs(again - before),
        path=path,
    )


def align(setup: TrainingSetup) -> LabelAlignment:
    """Compare labels (B, L) with ids (B, L), without a pass. Raises NotExamined for anything else."""
    found, ids = labels(setup), token_ids(setup)
    if found is None or ids is None or found[1].shape != ids[1].shape:
        raise NotExamined("The batch has no labels for each of its token ids.")
    label, tokens = found[1], ids[1]
    counted = label >= 0
    here = bool((label == tokens)[counted].all())
    followed = counted[:, :-1]
    shifted = bool((label[:, :-1] == tokens[:, 1:])[followed].all()) and bool(followed.any())
    if not counted.any() or not (here or shifted):
        raise NotExamined("The labels are neither the token ids nor the next ids: this is no next-token prediction.")
    if here and shifted:
        raise NotExamined("The text repeats one token, so the ids and the next ids cannot be distinguished.")
    return LabelAlignment(int(counted.sum()), here, shifted, None)
