"""Loops that keep numbers, or that release the graphs they keep."""

import collections
import warnings

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 12


def _program(loop, model=None):
    model = model or nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "loop": loop}


def _loss(model):
    return F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 3))


def _step(model, optimizer):
    optimizer.zero_grad()
    loss = _loss(model)
    loss.backward()
    optimizer.step()
    return loss


def numbers_and_detached_losses():
    def loop(model, optimizer):
        total, losses, mean = 0.0, [], torch.zeros(())
        for _ in range(STEPS):
            loss = _step(model, optimizer)
            total += loss.item()
            losses.append(loss.detach())
            mean = 0.9 * mean + 0.1 * loss.detach()

    return _program(loop)


def the_last_and_the_best_loss():
    def loop(model, optimizer):
        best = last = None
        for _ in range(STEPS):
            last = _step(model, optimizer)
            best = last if best is None or last < best else best
        assert best <= last

    return _program(loop)


def losses_of_an_iteration_in_which_three_optimizers_step():
    """What is logged of an iteration lives until the next one has replaced it."""
    model = nn.ModuleDict({name: nn.Linear(3, 3) for name in ("encoder", "critic", "actor")})

    def iteration(optimizers):
        logged = {}
        for name, optimizer in optimizers.items():
            optimizer.zero_grad()
            loss = _loss(model[name])
            loss.backward()
            optimizer.step()
            logged[name] = loss
        return logged

    def loop(model, _):
        optimizers = {name: torch.optim.SGD(part.parameters(), lr=0.01) for name, part in model.items()}
        for _ in range(STEPS):
            logged = iteration(optimizers)
        assert len(logged) == 3

    return {"model": model, "loop": loop}


def accumulation():
    def loop(model, optimizer):
        for _ in range(STEPS):
            optimizer.zero_grad()
            losses = [_loss(model) / 4 for _ in range(4)]
            for loss in losses:
                loss.backward()
            optimizer.step()

    return _program(loop)


def losses_of_one_step_summed_before_backward():
    def loop(model, optimizer):
        for _ in range(STEPS):
            optimizer.zero_grad()
            total = torch.zeros(())
            for _ in range(3):
                total = total + _loss(model)
            total.backward()
            optimizer.step()

    return _program(loop)


def truncated_backpropagation_through_time():
    def loop(model, optimizer):
        state = torch.zeros(4, 3)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = torch.zeros(())
            for _ in range(4):
                state = model(state + torch.randn(4, 3))
                loss = loss + state.square().mean()
            loss.backward()
            optimizer.step()
            state = state.detach()

    return _program(loop)


def gradient_penalty_with_retained_graph():
    def loop(model, optimizer):
        for _ in range(STEPS):
            optimizer.zero_grad()
            x = torch.randn(4, 3, requires_grad=True)
            loss = model(x).square().mean()
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + slope.square().mean()).backward(retain_graph=True)
            loss.backward()
            optimizer.step()

    return _program(loop)


def two_optimizers_over_two_players():
    def loop(model, optimizer):
        other = torch.optim.SGD(model[2].parameters(), lr=0.01)
        for _ in range(STEPS):
            first = _step(model, optimizer)
            second = _step(model, other)
        assert first is not second

    return _program(loop)


def kept_for_a_window_and_then_let_go():
    def loop(model, optimizer):
        window = []
        for step in range(STEPS):
            window.append(_step(model, optimizer))
            if step % 4 == 3:
                torch.stack(window).mean().item()
                window.clear()

    return _program(loop)


def predictions_kept_without_their_graphs():
    def loop(model, optimizer):
        predictions, last = [], None
        for _ in range(STEPS):
            optimizer.zero_grad()
            last = model(torch.randn(4, 3))
            F.mse_loss(last, torch.randn(4, 3)).backward()
            optimizer.step()
            predictions.append(last.detach())
        assert last.grad_fn is not None

    return _program(loop)


def five_steps_only():
    def loop(model, optimizer):
        for _ in range(5):
            _step(model, optimizer)

    return _program(loop) | {"expect": {"not_examined": "5 of 6 steps"}}


def _backward_with_a_graph(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of it, once
        loss.backward(create_graph=True)


def curvature_from_the_gradients():
    """As AdaHessian and Sophia do: the gradients are differentiated before the step."""

    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            _backward_with_a_graph(_loss(model))
            gradients = [p.grad for p in model.parameters()]
            signs = [torch.randint_like(g, 2) * 2 - 1 for g in gradients]
            torch.autograd.grad(gradients, list(model.parameters()), signs)
            optimizer.step()

    return _program(loop)


def penalty_on_the_gradients_with_a_second_backward():
    def loop(model, optimizer):
        for _ in range(12):
            optimizer.zero_grad()
            _backward_with_a_graph(_loss(model))
            sum(p.grad.square().sum() for p in model.parameters()).backward()
            optimizer.step()

    return _program(loop)


def features_of_the_last_call_and_of_others_without_their_graphs():
    kept = []

    def keep(module, _args, output):
        module.latest = output
        kept.append(output.detach())

    def loop(model, optimizer):
        model[0].register_forward_hook(keep)
        for _ in range(STEPS):
            _step(model, optimizer)

    return _program(loop)


def features_of_the_last_three_steps():
    kept = collections.deque(maxlen=3)

    def loop(model, optimizer):
        model[0].register_forward_hook(lambda _module, _args, output: kept.append(output))
        for _ in range(STEPS):
            _step(model, optimizer)

    return _program(loop)


def part_of_the_graph_that_is_built_once():
    """Frozen features of a prompt, with the graph of a trainable prompt that another optimizer would train."""

    def loop(model, optimizer):
        prompt = torch.randn(4, 3, requires_grad=True)
        shared = prompt.tanh().exp()
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.mse_loss(model(shared), torch.randn(4, 3)).backward(retain_graph=True)
            optimizer.step()

    return _program(loop)


def heads_of_many_tasks_whose_accumulators_are_held():
    """As DistributedDataParallel does, to put hooks on them."""
    model = nn.ModuleDict({str(task): nn.Linear(3, 2) for task in range(STEPS)})
    held = [p.expand_as(p).grad_fn.next_functions[0][0] for p in model.parameters()]

    def loop(model, optimizer):
        for task in range(STEPS):
            optimizer.zero_grad()
            F.mse_loss(model[str(task)](torch.randn(4, 3)), torch.randn(4, 2)).backward()
            optimizer.step()
        assert held

    return _program(loop, model)
