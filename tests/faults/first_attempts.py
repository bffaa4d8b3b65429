"""What check() and watch() said of programs that were written before any rule was tried on them. Not collected.

The rules were then changed until these programs were silent, so the other table of the page is no first attempt.
"""

from __future__ import annotations

TOPICS = (
    "text_written_by_hand",
    "language_with_structure",
    "images_and_distances",
    "generation_written_by_hand",
    "control_graphs_and_sets",
    "robot_policies_from_libraries",
)
"""The files of tests/healthy that hold them."""

ALARMS: dict[str, str] = {
    "codebook_that_follows_by_moving_averages": "DK112 twice: the module maintains its own codes and sums",
    "detector_that_mines_hard_negatives": "DK302: the lowest of the random pixels was far from the next",
    "differential_equation_solved_by_a_network": "DK003: two boundary points without a device",
    "energy_model_with_langevin_negatives": "DK003 twice, DK701: a replay buffer that the loss function holds",
    "mean_teacher_whose_weight_ramps_up_from_zero": "DK008: the weight is 0 in the first step",
    "mixture_of_experts_with_a_capacity": "DK305: samples compete for the experts",
    "nearest_neighbours_apart_from_oneself": "DK305: each sample is compared with each",
    "normalizing_flow_of_affine_couplings": "DK003 twice, DK002: the mean of the prior has no batch dimension",
    "q_network_that_a_global_copy_follows": "DK003 four times: the target network is not moved with the model",
    "radiance_field_rendered_along_rays": "DK003 three times: samples along the rays without a device",
    "residual_network_with_mixup_and_random_depth": "DK305: the loss function mixes samples",
    "segmentation_with_dice_and_a_gradient_scaler": "DK003 twice: `.to(DEVICE)`, which was the CPU",
    "speech_with_connectionist_temporal_classification": "DK003: `.to(device)`, which was the CPU",
    "tasks_that_take_turns_with_their_own_heads": "DK106 twice: heads of the tasks of other batches",
    "triplets_with_the_hardest_negative": "DK201: an Inf that `min` leaves out",
}
"""Errors and warnings on correct programs, by program."""

REAL_FAULTS: dict[str, str] = {
    "adversaries_with_labels_of_one_and_zero": "the step raised: labels were overwritten in place before `backward()`",
    "chunks_from_a_conditional_autoencoder": "DK309: a mean over padded steps; DK112: a norm that was not frozen",
}
"""What was found rightly: the program was corrected, and the rule was not changed."""

BY_RUN = (
    "When `debugkit run` was first tried on all of the correct programs, it stopped one, whose model is compiled, and "
    "raised a false alarm on 15: 13 times DK009, which took a line of debugkit for one of the program, DK112 on layers "
    "that a second stage thaws, and DK304 on experts with a capacity."
)
"""What `debugkit run` said when the programs were first given to it, on 2026-11-27."""
