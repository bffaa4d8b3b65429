"""Apply `normalise` and then `unnormalise` to the actions of the batch, and compare the result with the input."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from debugkit.finding import NotExamined
from debugkit.frames import definition_line, function_name
from debugkit.interventions.paired_methods import PairedMethods, paired_methods
from debugkit.rules.dk401_normaliser_round_trip import RANDOM_VALUES, NormaliserRoundTrips, RoundTrip
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_PAIRS = (
    ("normalize", "unnormalize"),
    ("normalise", "unnormalise"),
    ("normalize", "denormalize"),
    ("normalise", "denormalise"),
    ("normalize_action", "unnormalize_action"),
    ("normalise_action", "unnormalise_action"),
    ("normalize_actions", "unnormalize_actions"),
    ("normalise_actions", "unnormalise_actions"),
)
_ACTION_KEYS = ("action", "actions", "target")
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
"""A few rounding errors of each dtype, relative to the range of the values."""


def normalise_and_back(setup: TrainingSetup) -> NormaliserRoundTrips:
    """Try every pair: the declared one, or those found by name on a submodule or on an object that it holds."""
    pairs = list(paired_methods(setup, setup.declare.normaliser, _PAIRS))
    if not pairs:
        raise NotExamined(
            "No normalise/unnormalise pair was found by name: pass "
            "declare=Declare(normaliser=(normalise, unnormalise))."
        )
    trips = [trip for pair in pairs if (trip := _try(pair, setup)) is not None]
    if not trips:
        raise NotExamined("A normaliser was found, but it accepts no floating-point tensor of the batch.")
    return NormaliserRoundTrips(tuple(trips))


def _try(pair: PairedMethods, setup: TrainingSetup) -> RoundTrip | None:
    """The round trip on the first tensor that the pair accepts; None if it accepts none."""
    for path, values in _candidates(setup):
        try:
            with torch.no_grad():
                returned = pair.back(pair.forth(values.clone()))
        except Exception:
            continue  # the pair does not accept this tensor; it may accept the next one
        returned = torch.as_tensor(returned)
        if returned.shape == values.shape:
            return _measure(pair, path, values, returned)
    return None


def _candidates(setup: TrainingSetup) -> Iterator[tuple[str, torch.Tensor]]:
    """Floating-point tensors of the batch: the declared target first, then entries named like actions, then others."""
    tensors = [(path, tensor) for path, tensor in tensors_in(setup.batch) if tensor.is_floating_point() and tensor.ndim]
    declared = setup.declare.target

    def order(item: tuple[str, torch.Tensor]) -> int:
        name = item[0].rpartition(".")[2]
        return 0 if item[0] == declared else 1 if name in _ACTION_KEYS else 2

    yield from sorted(tensors, key=order)
    for width in range(1, 65):  # no tensor of the batch fits: try random values of every usual width
        yield RANDOM_VALUES, torch.randn(16, width, generator=torch.Generator().manual_seed(0))


def _measure(pair: PairedMethods, path: str, values: torch.Tensor, returned: torch.Tensor) -> RoundTrip:
    flat = values.reshape(-1, values.shape[-1]).double()  # (N, D)
    back = returned.reshape(-1, values.shape[-1]).double()
    extent = (flat.amax(0) - flat.amin(0)).clamp_min(flat.abs().amax(0)).clamp_min(1e-12)
    centred = flat - flat.mean(0)
    gain = (centred * (back - back.mean(0))).sum(0) / centred.square().sum(0)
    return RoundTrip(
        module=pair.module,
        normalise=function_name(pair.forth),
        unnormalise=function_name(pair.back),
        at=definition_line(pair.back),
        tried_on=path,
        error=tuple(((back - flat).abs().amax(0) / extent).tolist()),
        tolerance=_TOLERANCE.get(min(values.dtype, returned.dtype, key=lambda kind: kind.itemsize), 1e-2),
        gain=tuple(gain.tolist()),
    )
