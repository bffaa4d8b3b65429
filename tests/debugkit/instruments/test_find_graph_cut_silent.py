"""Gradients that are meant to stop are not called cuts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import debugkit

Case = tuple[nn.Module, Any, Callable[[nn.Module, Any], Any]]


class Forward(nn.Module):
    """A model whose parts and forward are given: a case in three lines."""

    def __init__(self, run: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.run = run
        self.history: list[Any] = []

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def plain(model: nn.Module, x: Tensor) -> Any:
    return model(x)


def linear(a: int = 4, b: int = 4) -> nn.Linear:
    return nn.Linear(a, b)


def healthy() -> Case:
    return Forward(lambda m, x: m.b(m.a(x).relu()).sum(), a=linear(), b=linear()), torch.randn(3, 4), plain


def logging_of_features_and_loss() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        m.history.append((h.detach().cpu().numpy(), h.norm().item(), h.argmax(-1).tolist()))
        loss = m.b(h).pow(2).mean()
        m.history.append(float(loss))
        return loss

    return Forward(run, a=linear(), b=linear()), torch.randn(3, 4), plain


def logging_of_a_branch_that_is_dropped() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        m.history.append(m.metric(h.detach()).norm().item())
        with torch.no_grad():
            m.history.append(m.metric(h))
        return h.sum()

    return Forward(run, a=linear(), metric=linear()), torch.randn(3, 4), plain


def straight_through_estimator() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        return m.b(h + (h.round() - h).detach()).sum()

    return Forward(run, a=linear(), b=linear()), torch.randn(3, 4), plain


def vector_quantiser_with_both_losses() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        code = m.codebook(torch.cdist(h, m.codebook.weight).argmin(-1))
        out = m.b(h + (code - h).detach())
        return out.pow(2).mean() + (code - h.detach()).pow(2).mean() + 0.25 * (h - code.detach()).pow(2).mean()

    return Forward(run, a=linear(), b=linear(), codebook=nn.Embedding(8, 4)), torch.randn(3, 4), plain


def frozen_tower() -> Case:
    model = Forward(lambda m, x: m.b(m.a(x).detach()).sum(), a=linear(), b=linear())
    model.get_submodule("a").requires_grad_(False)
    return model, torch.randn(3, 4), plain


def target_network_of_q_learning() -> Case:
    def loss(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = 1 + 0.9 * m.target(x).max(-1).values
        return (m.policy(x).max(-1).values - wanted).pow(2).mean()

    return Forward(plain, policy=linear(), target=linear()), torch.randn(3, 4), loss


def momentum_teacher_by_its_weights() -> Case:
    student = nn.Sequential(linear(), nn.ReLU(), linear())
    twin = copy.deepcopy(student)
    with torch.no_grad():
        for p in twin.parameters():
            p.add_(0.01 * torch.randn_like(p))

    def loss(m: Any, x: Tensor) -> Tensor:
        return (m.online(x) - m.slow(x).detach()).pow(2).mean()

    return Forward(plain, online=student, slow=twin), torch.randn(3, 4), loss


def stop_gradient_of_simsiam() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        z1, z2 = m.encoder(x), m.encoder(x + 0.1)
        return -torch.cosine_similarity(m.predictor(z1), z2.detach()).mean()

    return Forward(run, encoder=linear(), predictor=linear()), torch.randn(3, 4), plain


def gan_with_both_losses() -> Case:
    def losses(m: Any, x: Tensor) -> dict[str, Tensor]:
        fake = m.generator(torch.randn(3, 4))
        d = m.discriminator(fake.detach()).mean() - m.discriminator(x).mean()
        return {"discriminator": d, "generator": -m.discriminator(fake).mean()}

    return Forward(plain, generator=linear(), discriminator=linear(4, 1)), torch.randn(3, 4), losses


def last_prefix_layer_used_for_keys_and_values_only() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        k, v, q = m.k(x), m.v(x), m.q(x)
        m.o(torch.softmax(q @ k.T, -1) @ v)  # the prefix's own output: nobody reads it
        return (torch.softmax(m.suffix(x) @ k.T, -1) @ v).pow(2).sum()

    parts = {name: linear() for name in ("q", "k", "v", "o", "suffix")}
    return Forward(run, **parts), torch.randn(3, 4), plain


def experts_that_no_token_chose() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        weight, chosen = m.router(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(m.experts):
            rows = (chosen == index).nonzero().flatten()
            if rows.numel():
                out = out.index_add(0, rows, weight[rows, None] * expert(x[rows]))
        return out.pow(2).mean()

    return (
        Forward(run, router=linear(4, 16), experts=nn.ModuleList(linear() for _ in range(16))),
        torch.randn(3, 4),
        plain,
    )


def weights_held_by_an_unused_shape_only() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        return (m.b(x) + torch.ones_like(m.a(x)) + m.a(x).new_zeros(4)).pow(2).sum()

    return Forward(run, a=linear(), b=linear()), torch.randn(3, 4), plain


def tied_weights() -> Case:
    a, b = linear(), linear()
    b.weight = a.weight
    return Forward(lambda m, x: m.b(m.a(x)).pow(2).sum(), a=a, b=b), torch.randn(3, 4), plain


def lora_at_its_zero_start() -> Case:
    base, down, up = linear(), nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
    base.requires_grad_(False)
    nn.init.zeros_(up.weight)
    run = lambda m, x: (m.base(x) + m.up(m.down(x))).pow(2).sum()  # noqa: E731
    return Forward(run, base=base, down=down, up=up), torch.randn(3, 4), plain


def checkpointing_that_recomputes_in_backward() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.c(checkpoint(m.b, m.a(x), use_reentrant=True)).pow(2).sum()

    return Forward(run, a=linear(), b=nn.Sequential(linear(), nn.Dropout(0.5)), c=linear()), torch.randn(3, 4), plain


def checkpointing_without_reentry() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.b(checkpoint(m.a, x, use_reentrant=False)).pow(2).sum()

    return Forward(run, a=linear(), b=linear()), torch.randn(3, 4), plain


def attention_recurrence_norms_and_embeddings() -> Case:
    def run(m: Any, x: Tensor) -> Tensor:
        h = m.words(torch.tensor([[1, 2, 3], [0, 1, 1]]))
        h, _ = m.attention(h, h, h, need_weights=False)
        h, _ = m.memory(h)
        return m.sn(m.wn(m.norm(h.transpose(1, 2)).transpose(1, 2))).pow(2).mean() + x.sum()

    parts: dict[str, nn.Module] = {
        "words": nn.Embedding(5, 4, sparse=False),
        "attention": nn.MultiheadAttention(4, 2, batch_first=True),
        "memory": nn.LSTM(4, 4, batch_first=True),
        "norm": nn.BatchNorm1d(4),
        "wn": nn.utils.parametrizations.weight_norm(linear()),
        "sn": nn.utils.parametrizations.spectral_norm(linear()),  # iterates on a view of its weight under no_grad
    }
    return Forward(run, **parts), torch.randn(3, 4), plain


def a_custom_function_with_its_gradient() -> Case:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x * w.detach() * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad * w * 2, (grad * x * 2).sum(0)

    return Forward(lambda m, x: Double.apply(m.a(x), m.b.bias).sum(), a=linear(), b=linear()), torch.randn(3, 4), plain


def actor_and_critic() -> Case:
    def loss(m: Any, x: Tensor) -> Tensor:
        h = m.body(x).tanh()
        policy, value = torch.distributions.Categorical(logits=m.actor(h)), m.critic(h)[:, 0]
        log_prob = policy.log_prob(policy.sample())
        ratio, advantage = (log_prob - log_prob.detach()).exp(), 1 - value.detach()
        return -(ratio * advantage).mean() + (1 - value).pow(2).mean() - 0.01 * policy.entropy().mean()

    return Forward(plain, body=linear(), actor=linear(4, 3), critic=linear(4, 1)), torch.randn(3, 4), loss


SILENT = [
    actor_and_critic,
    healthy, logging_of_features_and_loss, logging_of_a_branch_that_is_dropped, straight_through_estimator,
    vector_quantiser_with_both_losses, frozen_tower, target_network_of_q_learning, momentum_teacher_by_its_weights,
    stop_gradient_of_simsiam, gan_with_both_losses, last_prefix_layer_used_for_keys_and_values_only,
    experts_that_no_token_chose, weights_held_by_an_unused_shape_only, tied_weights, lora_at_its_zero_start,
    checkpointing_that_recomputes_in_backward, checkpointing_without_reentry,
    attention_recurrence_norms_and_embeddings, a_custom_function_with_its_gradient,
]  # fmt: skip


@pytest.mark.parametrize("case", SILENT, ids=lambda case: case.__name__)
def test_what_is_meant_to_stop_is_not_called_a_cut(case: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    model, batch, loss_fn = case()
    found = debugkit.find_graph_cut(model, batch, loss_fn)
    assert not found, str(found)
    assert "No cut" in str(found)


def test_a_target_network_is_reported_as_held_constant() -> None:
    model, batch, loss_fn = target_network_of_q_learning()
    assert debugkit.find_graph_cut(model, batch, loss_fn).held_constant == ("target.weight", "target.bias")


def test_a_dropped_branch_is_reported_as_without_effect() -> None:
    model, batch, loss_fn = last_prefix_layer_used_for_keys_and_values_only()
    found = debugkit.find_graph_cut(model, batch, loss_fn)
    assert found.without_effect == ("q.weight", "q.bias", "o.weight", "o.bias")
