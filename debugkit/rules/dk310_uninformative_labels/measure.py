"""Fits the targets from the inputs with leave-one-out, and then fits shuffled targets in the same way.

The fit is kernel ridge regression on pooled pixels, bags of tokens and plain numbers, with products of pairs of them.
It has a closed form and needs no training and no model. It measures what is in the data, not what this model makes of
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import entry, is_index, labels, target
from debugkit.interventions.program_lines import batches_made_at
from debugkit.loader_samples import batches_of
from debugkit.rules.dk310_uninformative_labels import LabelInformation
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, tensors_in

_FEWEST, _MOST = 128, 512
_SHUFFLES = 199
_MOST_CLASSES = 64
_MOST_TOKENS = 4096
_POOLED_SIDE = 8
_INTERCEPT = 1e3
"""A constant feature that all samples share, so that the fit may have any mean."""
_RIDGES = (1e-3, 1e-1, 10.0)
_BOOKKEEPING = ("index", "idx", "timestamp", "is_pad", "weight")


def shuffle_the_labels(setup: TrainingSetup) -> LabelInformation:
    """Uses the first 512 samples of the training loader. No forward pass; about 200 products of (512, 512) matrices."""
    loader = setup.loaders.get("train")
    if loader is None:
        raise NotExamined("No training loader was given: pass dataloader=.")
    path = _target_path(setup)
    inputs: dict[str, list[torch.Tensor]] = {}
    targets: list[torch.Tensor] = []
    samples = 0
    with batches_of(loader, _MOST) as batches:
        for batch in batches:
            found = dict(tensors_in(batch))
            size = batch_size(batch)
            if path not in found or found[path].shape[:1] != (size,):
                raise NotExamined(f"A batch of the loader has no {path!r} with a row per sample.")
            targets.append(found[path].detach().cpu())
            for name, tensor in _inputs(setup, found, size, path):
                inputs.setdefault(name, []).append(tensor)
            samples += size or 0
            if samples >= _MOST:
                break
    if samples < _FEWEST:
        raise NotExamined(f"The loader has {samples} samples, but the test needs at least {_FEWEST}.")
    wanted = _as_numbers(targets)[:_MOST]  # (N, K)
    kernel = _kernel([_features(tensors)[:_MOST] for tensors in inputs.values() if len(tensors) == len(targets)])
    return replace(_test(path, kernel, wanted), made_at=batches_made_at(loader))


def _target_path(setup: TrainingSetup) -> str:
    found = target(setup) or labels(setup)
    if found is not None:
        return found[0]
    if isinstance(setup.batch, list | tuple) and len(setup.batch) > 1:
        return str(len(setup.batch) - 1)  # (inputs, target), by convention
    raise NotExamined("The batch has neither labels nor a target action: pass Declare(labels=…) or target=….")


def _inputs(
    setup: TrainingSetup, found: dict[str, torch.Tensor], size: int | None, path: str
) -> Iterator[tuple[str, torch.Tensor]]:
    answers = {path, *(role[0] for role in (labels(setup), target(setup)) if role is not None)}
    mask = entry(setup, ("attention_mask",))
    for name, tensor in found.items():
        hidden = name in answers or name.lower().endswith(_BOOKKEEPING) or tensor.dtype is torch.bool
        if tensor.shape[:1] == (size,) and not hidden and tensor.ndim > 0 and (mask is None or name != mask[0]):
            yield name, tensor.detach().cpu()


def _as_numbers(targets: list[torch.Tensor]) -> torch.Tensor:
    """Targets (N, K): actions flattened, classes one-hot. Raises NotExamined for token labels."""
    joined = torch.cat([tensor.reshape(len(tensor), -1) for tensor in targets])
    if not is_index(joined):
        return joined.double().nan_to_num()
    if joined.shape[1] > 1:
        raise NotExamined("The labels are tokens of a text, which this test does not fit.")
    classes = torch.unique(joined, return_inverse=True)[1].flatten()
    if int(classes.max()) + 1 > _MOST_CLASSES:
        raise NotExamined(f"The labels have more than {_MOST_CLASSES} classes, too many for this test.")
    return F.one_hot(classes).double()


def _features(tensors: list[torch.Tensor]) -> torch.Tensor:
    """(N, D) standardised: images pooled to 8 × 8, ids as bags of tokens, everything else unchanged."""
    if is_index(tensors[0]) and tensors[0].ndim == 2:
        rows = torch.cat([_bag(tensor) for tensor in tensors])
    elif tensors[0].ndim == 4:
        rows = torch.cat([_pooled(tensor) for tensor in tensors])
    else:
        rows = torch.cat([tensor.reshape(len(tensor), -1).double() for tensor in tensors])
    rows = rows.nan_to_num(0.0, 0.0, 0.0)
    return (rows - rows.mean(0)) / rows.std(0).clamp_min(1e-9) * (rows.std(0) > 1e-9)


def _bag(ids: torch.Tensor) -> torch.Tensor:
    folded = ids.clamp_min(0) % _MOST_TOKENS
    return torch.zeros(len(ids), _MOST_TOKENS, dtype=torch.float64).scatter_add(
        1, folded, torch.ones_like(folded, dtype=torch.float64)
    )


def _pooled(image: torch.Tensor) -> torch.Tensor:
    values = image.double() if image.shape[1] <= 4 else image.double().movedim(-1, 1)
    return F.adaptive_avg_pool2d(values, _POOLED_SIDE).flatten(1)


def _kernel(features: list[torch.Tensor]) -> torch.Tensor:
    """(N, N): the similarities within each input, their sum, and its square for combinations of two inputs."""
    parts = []
    for rows in features:
        gram = rows @ rows.T
        scale = gram.diagonal().mean()
        if scale > 0:
            parts.append(gram / scale)
    if not parts:
        raise NotExamined("The loader's inputs are the same for all samples.")
    together = torch.stack(parts).sum(0) / len(parts)
    near = (together.diagonal()[:, None] + together.diagonal() - 2 * together).clamp_min(0)
    return together + together.square() + torch.exp(-near)


def _test(path: str, kernel: torch.Tensor, wanted: torch.Tensor) -> LabelInformation:
    wanted = wanted[:, wanted.std(0) > 1e-9]
    if not wanted.shape[1]:
        raise NotExamined("The targets are the same for all samples.")
    wanted = (wanted - wanted.mean(0)) / wanted.std(0, correction=0)
    fits = [_leave_one_out(kernel, ridge) for ridge in _RIDGES]
    generator = torch.Generator().manual_seed(0)
    error = _error(fits, wanted)
    shuffled = torch.tensor(
        [_error(fits, wanted[torch.randperm(len(wanted), generator=generator)]) for _ in range(_SHUFFLES)]
    )
    p_value = (1 + int((shuffled <= error).sum())) / (1 + _SHUFFLES)
    return LabelInformation(path, len(wanted), error, float(shuffled.median()), p_value, _SHUFFLES)


def _leave_one_out(kernel: torch.Tensor, ridge: float) -> torch.Tensor:
    """(N, N): the matrix that maps targets to the errors of a fit without the sample itself."""
    eye = torch.eye(len(kernel), dtype=kernel.dtype)
    inverse: torch.Tensor = torch.linalg.solve(kernel + _INTERCEPT + ridge * eye, eye)
    return inverse / inverse.diagonal()[:, None]


def _error(fits: list[torch.Tensor], wanted: torch.Tensor) -> float:
    """The smallest mean squared error over the ridges. It is chosen for each target separately, shuffled ones too."""
    return min(float((fit @ wanted).square().mean()) for fit in fits)
