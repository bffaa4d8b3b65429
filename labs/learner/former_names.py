"""The names that the labs' folders had in older releases: a learner's attempt may still be in a folder of that name."""

from __future__ import annotations

from labs.grading.catalog import Lab
from labs.learner.pack import is_foreign

FORMER_NAMES: dict[str, tuple[str, ...]] = {
    "01": ("lab01_projector_width",),
    "02": ("lab02_token_out_of_range",),
    "03": ("lab03_silent_broadcast",),
    "04": ("lab04_stray_device",),
    "05": ("lab05_skipped_skip",),
    "11": ("lab11_frozen_by_pattern",),
    "12": ("lab12_cut_graph",),
    "13": ("lab13_first_layer_only",),
    "14": ("lab14_missing_from_optimizer",),
    "16": ("lab16_vanishing_head",),
    "17": ("lab17_clip_before_unscale",),
    "18": ("lab18_wrong_backward",),
    "21": ("lab21_constant_joint",),
    "22": ("lab22_sqrt_at_zero",),
    "23": ("lab23_log_of_softmax",),
    "25": ("lab25_fp16_overflow",),
    "28": ("lab28_fp16_underflow",),
    "32": ("lab32_padded_labels",),
    "34": ("lab34_action_token_round_trip",),
    "41": ("lab41_unnormalise",),
    "42": ("lab42_padded_steps",),
    "45": ("lab45_future_leak",),
    "51": ("lab51_stale_gradients",),
    "52": ("lab52_evaluation_mode",),
    "53": ("lab53_accumulation",),
    "55": ("lab55_cannot_overfit",),
    "61": ("lab61_summed_losses",),
    "62": ("lab62_validation_graph",),
    "63": ("lab63_memory_budget",),
    "71": ("lab71_worker_randomness",),
    "81": ("lab81_missing_image_hang",),
    "91": ("lab91_lightning_stray_tensor",),
    "93": ("lab93_hydra_merge_order",),
    "95": ("lab95_hydra_output_dirs",),
}
"""By the lab's number, newest first."""


def names_of(lab: Lab) -> tuple[str, ...]:
    """The name of the lab's folder, and those of older releases."""
    return (lab.name, *(() if is_foreign() else FORMER_NAMES.get(lab.id, ())))
