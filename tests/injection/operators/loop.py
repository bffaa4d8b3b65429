"""The training loop: what happens, in which order, in which mode."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "loop")
_STEP = r"optimizer\.step\(\)|loss( / ACCUMULATE\))?\.backward\(\)|zero_grad"
_ZERO = r"^ {8,}(?:optimizer|model)\.zero_grad\([^\n]*\)\n"

fault("gradients_never_reset", "DK501", "gradients are never reset", [(_ZERO, "")], lines=_STEP)
fault(
    "gradients_reset_once_an_epoch",
    "DK501",
    "gradients are reset once in an epoch",
    [(_ZERO, ""), (r"^        model\.train\(\)$", r"        model.train()\n        optimizer.zero_grad()")],
    lines=_STEP,
)
fault(
    "gradients_reset_before_the_step",
    "DK502",
    "gradients are reset between backward and step",
    [(r"^(\s+)optimizer\.step\(\)", r"\1optimizer.zero_grad()\n\1optimizer.step()")],
    lines=_STEP,
)
fault("step_forgotten", "DK502", "the optimizer never steps", [(r"^(\s+)optimizer\.step\(\)\n", "")], lines=_STEP)
fault(
    "steps_once_an_epoch",
    "DK502 DK501 DK512",
    "the step is outside of the loop over the batches, which resets the gradients",
    [(r"^(\s+)optimizer\.step\(\)\n", ""), (r"^(        )(model\.train\(\))$", r"\1optimizer.step()\n\1\2")],
    lines=_STEP,
)
fault(
    "schedule_before_the_step",
    "DK503",
    "the schedule is stepped before the optimizer",
    [(r"^(\s+)optimizer\.step\(\)\n\s+scheduler\.step\(\)", r"\1scheduler.step()\n\1optimizer.step()")],
    lines=r"(scheduler|optimizer)\.step",
)
fault(
    "schedule_for_each_micro_batch",
    "DK503",
    "the schedule is stepped for each micro-batch of an accumulation",
    [(r"^ +scheduler\.step\(\)\n", ""), (r"^(\s+)(\(loss / ACCUMULATE\)\.backward\(\))$", r"\1\2\n\1scheduler.step()")],
    lines=r"scheduler",
)
fault(
    "schedule_of_another_optimizer",
    "DK503",
    "the schedule belongs to an optimizer that is not stepped",
    [
        (
            r"^scheduler = ",
            r"stepped = optimizer\noptimizer = copy.copy(optimizer)\noptimizer.param_groups = [dict(group) for group in stepped.param_groups]\nscheduler = ",
        ),
        (r"^(scheduler = .*)$", r"\1\noptimizer = stepped"),
    ],
    lines=r"scheduler",
)
fault(
    "schedule_for_each_batch_instead_of_each_epoch",
    "DK503 DK509",
    "a schedule that counts epochs is stepped for each batch",
    [
        (r"^        scheduler\.step\(\)\n", ""),
        (r"^(\s+)optimizer\.step\(\)$", r"\1optimizer.step()\n\1scheduler.step()"),
    ],
    lines=r"scheduler",
)
fault(
    "schedule_ends_at_once",
    "DK509 DK503",
    "the schedule is as long as one step, so the rate is zero for most of the run",
    [
        (
            r"torch\.optim\.lr_scheduler\..*$",
            r"torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step))",
        )
    ],
    lines=r"scheduler|optimizer",
)
fault(
    "warm_up_never_leaves_zero",
    "DK509 DK503",
    "integer division keeps the rate of the warm-up at zero",
    [(r"min\(1\.0, \(step \+ 1\) / 4\)", r"min(1, step // 1000)")],
    lines=r"scheduler|optimizer",
)
fault(
    "clipped_before_backward",
    "DK504",
    "gradients are clipped before backward",
    [
        (r"^ +torch\.nn\.utils\.clip_grad_\w+\(.*\)\n", ""),
        (
            r"^(\s+)((?:loss|\(loss / ACCUMULATE\))\.backward\(\))$",
            r"\1torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n\1\2",
        ),
    ],
    lines=r"clip_grad",
)
fault(
    "clipped_after_the_step",
    "DK504",
    "gradients are clipped after the step",
    [(r"^(\s+)(torch\.nn\.utils\.clip_grad_\w+\(.*\))\n\s+(optimizer\.step\(\))$", r"\1\3\n\1\2")],
    lines=r"clip_grad",
)
fault(
    "clipped_to_a_millionth",
    "DK206 DK509",
    "the bound of the clipping is a millionth",
    [(r"(clip_grad_\w+\(model\.parameters\(\)), 1\.0", r"\1, 1e-6")],
)
fault(
    "eval_mode_after_validation",
    "DK505",
    "the model stays in eval mode after the first validation",
    [
        (r"^(    return total / len.*)$", r"\1"),
        (r"^    model\.train\(\)\n    return total", r"    return total"),
        (r"^        model\.train\(\)\n", ""),
    ],
    lines=r"\.eval\(\)|compute_loss|def train",
)
fault(
    "eval_mode_from_the_start",
    "DK505",
    "the model is trained in eval mode",
    [(r"^        model\.train\(\)$", r"        model.eval()")],
    lines=r"\.eval\(\)|compute_loss",
)
fault(
    "dropout_knows_no_mode",
    "DK506",
    "functional dropout does not follow the mode of the model",
    [(r"self\.dropout\((self\.norm\(pooled\)|x|pooled|scores\.softmax\(dim=-1\))\)", r"F.dropout(\1, 0.3)")],
    [(r"^(\s+)return self\.head\((x|pooled)\)", r"\1\2 = F.dropout(\2, 0.3)\n\g<0>")],
    modules=r".",
)
fault(
    "validation_in_training_mode",
    "DK510",
    "validation runs in training mode",
    [(r"^    model\.eval\(\)\n", "")],
    lines=r"compute_loss\(model, batch\)\.item|def evaluate|no_grad|inference_mode",
)
fault(
    "accumulation_not_divided",
    "DK507",
    "the losses of an accumulation are not divided by their number",
    [(r"\(loss / ACCUMULATE\)\.backward", r"loss.backward")],
)
fault(
    "divided_without_accumulation",
    "",
    "the loss is divided as if gradients were accumulated, and every batch is a step",
    [(r"^(\s+)loss\.backward\(\)", r"\1(loss / 64).backward()")],
)
fault(
    "last_micro_batches_dropped",
    "",
    "gradients of the last micro-batches of an epoch are left for the next",
    [(r" or number \+ 1 == len\(train_loader\):", r":")],
)
fault(
    "only_the_first_batch",
    "DK703",
    "a new iterator is made for each step, without shuffling: it is the same batch each time",
    [
        (r"shuffle=True", r"shuffle=False"),
        (
            r"for number, batch in enumerate\(train_loader\):",
            r"for number in range(len(train_loader)):\n            batch = next(iter(train_loader))",
        ),
    ],
)
fault(
    "optimizer_recreated_each_epoch",
    "DK511",
    "the optimizer is recreated in each epoch, so its averages are lost",
    [(r"^(        )(model\.train\(\))$", r"\1\2\n\1optimizer.state.clear()")],
)
fault(
    "loss_of_the_wrong_sign",
    "DK207",
    "the loss is maximised",
    [(r"^    return (F\.\w+\(.*\))$", r"    return -\1")],
    [(r"^    return model\(\*\*batch\)\.loss$", r"    return -model(**batch).loss")],
)
fault(
    "best_weights_are_a_reference",
    "DK513",
    "the best weights are kept without a copy, so they are always the last ones",
    [(r"copy\.deepcopy\(model\.state_dict\(\)\)", r"model.state_dict()")],
)
fault(
    "average_never_follows",
    "DK009",
    "the averaged copy moves by nothing",
    [(r"kept\.lerp_\(now, 0\.1\)", r"kept.lerp(now, 0.1)")],
)
fault(
    "last_batch_validated",
    "DK321",
    "validation computes the loss of the training batch",
    [(r"^(\s+)for batch in valid_loader:", r"\1for _ in valid_loader:\n\1    batch = next(iter(train_loader))")],
)
