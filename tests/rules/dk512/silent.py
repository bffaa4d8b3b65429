"""Loops that call backward several times for one step, on purpose."""

import torch
from torch import nn
from torch.nn import functional as F


def _model():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8))


def _program(loop, optimizer=torch.optim.AdamW, **options):
    model = _model()
    return {"model": model, "optimizer": optimizer(model.parameters(), **options), "loop": loop}


def _loss(model):
    return model(torch.randn(4, 3)).square().mean()


def plain():
    def loop(model, optimizer):
        for _ in range(8):
            optimizer.zero_grad()
            _loss(model).backward()
            optimizer.step()

    return _program(loop)


def accumulation():
    def loop(model, optimizer):
        for micro in range(40):
            (_loss(model) / 8).backward()
            if micro % 8 == 7:
                optimizer.step()
                optimizer.zero_grad()

    return _program(loop)


def accumulation_with_each_micro_batch_clipped():
    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad(set_to_none=False)
            for _micro in range(5):
                _loss(model).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    return _program(loop)


def critic_that_steps_between():
    """The generator's gradients are filled and reset in each of the critic's steps."""
    model = nn.ModuleDict({"generator": nn.Linear(3, 8), "critic": nn.Linear(8, 8)})
    generator, critic = (torch.optim.Adam(part.parameters(), lr=0.01) for part in model.values())

    def loop(model, optimizers):
        for step in range(24):
            model.zero_grad()
            model["critic"](model["generator"](torch.randn(4, 3))).square().mean().backward()
            critic.step()
            if step % 6 == 5:
                model.zero_grad()
                (-model["critic"](model["generator"](torch.randn(4, 3))).square().mean()).backward()
                generator.step()

    return {"model": model, "optimizer": [generator, critic], "loop": loop}


def projected_gradients_of_tasks():
    """As in PCGrad: each task's gradients are collected, and what is used is written before the step."""

    def loop(model, optimizer):
        for _ in range(6):
            collected = []
            for task in range(4):
                optimizer.zero_grad()
                model(torch.randn(4, 3))[:, task].square().mean().backward()
                collected.append([p.grad.clone() for p in model.parameters()])
            for index, parameter in enumerate(model.parameters()):
                parameter.grad = sum(one[index] for one in collected)
            optimizer.step()

    return _program(loop)


def clipped_for_each_sample():
    """As in differential privacy written by hand: a sum of clipped gradients, with noise."""

    def loop(model, optimizer):
        for _ in range(6):
            total = [torch.zeros_like(p) for p in model.parameters()]
            for state in torch.randn(6, 3):
                model.zero_grad()
                model(state[None]).square().mean().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                for kept, parameter in zip(total, model.parameters(), strict=True):
                    kept += parameter.grad
            for kept, parameter in zip(total, model.parameters(), strict=True):
                parameter.grad.copy_(kept + 0.01 * torch.randn_like(kept))
            optimizer.step()

    return _program(loop, torch.optim.SGD, lr=0.1)


def steps_skipped_by_the_scaler():
    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, backoff_factor=2.0**-2)
        for _ in range(60):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = _loss(model)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return _program(loop)


def steps_skipped_for_large_gradients():
    def loop(model, optimizer):
        for number in range(24):
            optimizer.zero_grad()
            scale = 1e6 if number in (5, 6, 7, 8) else 1.0
            (scale * _loss(model)).backward()
            if nn.utils.clip_grad_norm_(model.parameters(), 1e3) < 1e3:
                optimizer.step()

    return _program(loop)


def fisher_information_after_each_task():
    """As in elastic weight consolidation: squared gradients of some batches, between the tasks."""

    def loop(model, optimizer):
        def backward():
            model.zero_grad()
            _loss(model).backward()

        for _task in range(3):
            for _ in range(6):
                backward()
                optimizer.step()
            squares = [torch.zeros_like(p) for p in model.parameters()]
            for _ in range(6):
                backward()
                for square, parameter in zip(squares, model.parameters(), strict=True):
                    square += parameter.grad.square()

    return _program(loop)


def batch_chosen_by_its_gradient():
    """Each step compares the gradients of some batches, and learns from the one with the largest."""

    def loop(model, optimizer):
        def backward(state):
            optimizer.zero_grad()
            model(state).square().mean().backward()
            return float(sum(p.grad.norm() for p in model.parameters()))

        for _ in range(6):
            batches = torch.randn(5, 4, 3)
            norms = [backward(state) for state in batches]
            backward(batches[norms.index(max(norms))])
            optimizer.step()

    return _program(loop)


def several_steps_uphill_before_each_step():
    """As in SAM with several ascents."""

    def loop(model, optimizer):
        for _ in range(6):
            state = torch.randn(4, 3)
            before = [p.detach().clone() for p in model.parameters()]
            for ascent in range(5):
                optimizer.zero_grad()
                model(state).square().mean().backward()
                if ascent < 4:
                    for parameter in model.parameters():
                        parameter.data += 0.01 * parameter.grad.sign()
            for parameter, start in zip(model.parameters(), before, strict=True):
                parameter.data.copy_(start)
            optimizer.step()

    return _program(loop, torch.optim.SGD, lr=0.1)


def updates_written_by_hand():
    """The network is updated by hand for each batch; an optimizer holds it, too, and steps once an epoch."""
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def loop(model, optimizer):
        for _epoch in range(4):
            for _ in range(6):
                model.zero_grad()
                _loss(model).backward()
                for parameter in model.parameters():
                    parameter.data -= 0.01 * parameter.grad
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def rate_finder():
    def loop(model, optimizer):
        for number in range(20):
            for group in optimizer.param_groups:
                group["lr"] = 1e-6 * 1.5**number
            optimizer.zero_grad()
            _loss(model).backward()
            optimizer.step()

    return _program(loop)


def saliency_before_the_training():
    """As in pruning at initialisation: scores from the gradients of ten batches, then training."""

    def loop(model, optimizer):
        scores = [torch.zeros_like(p) for p in model.parameters()]
        for _ in range(10):
            optimizer.zero_grad()
            _loss(model).backward()
            for score, parameter in zip(scores, model.parameters(), strict=True):
                score += (parameter * parameter.grad).abs().detach()
        for _ in range(8):
            optimizer.zero_grad()
            F.relu(_loss(model)).backward()
            optimizer.step()

    return _program(loop)


def closure_of_lbfgs():
    def loop(model, optimizer):
        state = torch.randn(8, 3)

        def closure():
            optimizer.zero_grad()
            loss = model(state).square().mean()
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)

    return _program(loop, torch.optim.LBFGS, max_iter=6)


def two_probes_before_a_few_of_the_steps():
    def loop(model, optimizer):
        for step in range(16):
            for _ in range(3 if step % 4 == 0 else 1):  # the norms of other batches are logged now and then
                optimizer.zero_grad()
                _loss(model).backward()
                nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
            optimizer.step()

    return _program(loop)


def attack_of_two_steps_before_each_step():
    def loop(model, optimizer):
        for _ in range(10):
            state, action = torch.randn(8, 3), torch.randn(8, 8)
            noise = torch.zeros_like(state, requires_grad=True)
            for _attack in range(2):
                F.mse_loss(model(state + noise), action).backward()
                noise.data += 0.01 * noise.grad.sign()
                model.zero_grad()
            F.mse_loss(model(state + noise.detach()), action).backward()
            optimizer.step()
            optimizer.zero_grad()

    return _program(loop)


def two_micro_batches_accumulated():
    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad(set_to_none=False)
            for _micro in range(2):
                (_loss(model) / 2).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    return _program(loop)


def generator_whose_gradients_reach_the_critic():
    """Both losses are means of two, and the same function calls `backward()`."""
    model = nn.ModuleDict({"generator": nn.Linear(3, 8), "critic": nn.Linear(8, 8)})
    optimizers = [torch.optim.Adam(part.parameters(), lr=0.01) for part in model.values()]

    def loop(model, optimizers):
        critic, generator = model["critic"], model["generator"]
        for _ in range(12):
            for own in (0, 1):
                fake = generator(torch.randn(4, 3))
                wrong, right = critic(fake).square().mean(), critic(torch.randn(4, 8)).square().mean()
                optimizers[own].zero_grad()
                ((wrong + right) / 2).backward()
                optimizers[own].step()

    return {"model": model, "optimizer": optimizers, "loop": loop}


def penalty_on_the_gradient():
    def loop(model, optimizer):
        for _ in range(12):
            state = torch.randn(4, 3, requires_grad=True)
            optimizer.zero_grad()
            loss = model(state).square().mean()
            (slope,) = torch.autograd.grad(loss, state, create_graph=True)
            ((loss + slope.square().mean()) / 2).backward()
            optimizer.step()

    return _program(loop)


def norm_of_another_loss_logged_before_each_step():
    def loop(model, optimizer):
        for _ in range(12):
            (_loss(model) / 2).backward()
            nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
            optimizer.zero_grad()
            (_loss(model) / 2).backward()
            optimizer.step()
            optimizer.zero_grad()

    return _program(loop)


def noise_scale_from_a_small_and_a_large_batch():
    """The same lines; the norms of both gradients are compared, and the large batch is learned from."""

    def loop(model, optimizer):
        for _ in range(12):
            norms = []
            for size in (4, 32):
                optimizer.zero_grad()
                model(torch.randn(size, 3)).square().mean().backward()
                norms.append(nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()]))
            optimizer.step()

    return _program(loop)


def attack_of_one_step_before_each_step():
    def loop(model, optimizer):
        for _ in range(12):
            noise = torch.zeros(4, 3, requires_grad=True)
            for _attack in range(2):
                optimizer.zero_grad()
                model(torch.randn(4, 3) + noise).square().mean().backward()
                noise.data += 0.01 * noise.grad.sign()
            optimizer.step()

    return _program(loop)


def one_step_uphill_before_each_step():
    """As in SAM, with a loss that is divided by 2."""

    def loop(model, optimizer):
        for _ in range(12):
            state = torch.randn(4, 3)
            before = [p.detach().clone() for p in model.parameters()]
            for ascent in range(2):
                optimizer.zero_grad()
                (model(state).square().mean() / 2).backward()
                if ascent == 0:
                    for parameter in model.parameters():
                        parameter.data += 0.01 * parameter.grad.sign()
            for parameter, start in zip(model.parameters(), before, strict=True):
                parameter.data.copy_(start)
            optimizer.step()

    return _program(loop, torch.optim.SGD, lr=0.1)


def conflict_of_two_tasks_resolved():
    """As in PCGrad: what is used is written before the step."""

    def loop(model, optimizer):
        for _ in range(12):
            collected = []
            for task in range(2):
                optimizer.zero_grad()
                (model(torch.randn(4, 3))[:, task].square().mean() / 2).backward()
                collected.append([p.grad.clone() for p in model.parameters()])
            for one, two, parameter in zip(*collected, model.parameters(), strict=True):
                parameter.grad = one + two
            optimizer.step()

    return _program(loop)


def two_heads_with_optimizers_that_share_a_trunk():
    """Each optimizer resets the trunk, too; the heads have one gradient each."""
    model = nn.ModuleDict({"trunk": nn.Linear(3, 8), "one": nn.Linear(8, 1), "two": nn.Linear(8, 1)})
    trunk = list(model["trunk"].parameters())
    optimizers = [torch.optim.SGD([*trunk, *model[name].parameters()], lr=0.01) for name in ("one", "two")]

    def loop(model, optimizers):
        for _ in range(12):
            for name, optimizer in zip(("one", "two"), optimizers, strict=True):
                optimizer.zero_grad()
                (model[name](model["trunk"](torch.randn(4, 3)).tanh()).square().mean() / 2).backward()
            for optimizer in optimizers:
                optimizer.step()

    return {"model": model, "optimizer": optimizers, "loop": loop}
