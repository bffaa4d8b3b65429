"""Whether the loss shifts the labels: change the first label of each row, which a shifting loss never reads."""

from __future__ import annotations

import torch

from debugkit.batch_roles import labels, token_ids
from debugkit.experiments import experiment
from debugkit.experiments.passes import evaluate, floor
from debugkit.finding import NotExamined
from debugkit.observations.label_alignment import LabelAlignment
from debugkit.structure import map_tensors
from debugkit.subject import Subject


@experiment(LabelAlignment, cost=2, requires=("batch",))
def change_the_first_label(subject: Subject) -> LabelAlignment:
    """One pass with other first labels and one without: a loss that does not read them is equal to the last bit."""
    alignment = align(subject)
    before = float(floor(subject, output_needed=False)[0].loss)
    found, ids = labels(subject), token_ids(subject)
    assert found is not None
    assert ids is not None  # align() has both
    path, label = found
    other = torch.where(ids[1][:, 0] == label[:, 0], ids[1][:, -1], ids[1][:, 0])
    if bool((other == label[:, 0]).all()):
        raise NotExamined("The first token of each row is its last one too, so no other first label can be given.")

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name == path:
            tensor[:, 0] = other.to(tensor)
        return tensor

    changed = map_tensors(subject.fresh_batch(), change)
    after, again = (float(evaluate(subject, batch, output_needed=False).loss) for batch in (changed, None))
    return LabelAlignment(
        supervised=alignment.supervised,
        labels_are_ids=alignment.labels_are_ids,
        labels_are_next_ids=alignment.labels_are_next_ids,
        loss_shifts=abs(after - before) <= 10 * abs(again - before),
    )


def align(subject: Subject) -> LabelAlignment:
    """How labels (B, L) lie against ids (B, L), by reading them alone. Raises NotExamined for anything else."""
    found, ids = labels(subject), token_ids(subject)
    if found is None or ids is None or found[1].shape != ids[1].shape:
        raise NotExamined("The batch has no labels for each of its token ids.")
    label, tokens = found[1], ids[1]
    counted = label >= 0
    here = bool((label == tokens)[counted].all())
    followed = counted[:, :-1]
    shifted = bool((label[:, :-1] == tokens[:, 1:])[followed].all()) and bool(followed.any())
    if not counted.any() or not (here or shifted):
        raise NotExamined("The labels are neither the token ids nor the next ones: this is no next-token prediction.")
    if here and shifted:
        raise NotExamined("The text repeats one token, so labels and next labels cannot be told apart.")
    return LabelAlignment(int(counted.sum()), here, shifted, None)
