"""Linear layers next to each other for a reason, and layers with something between them."""

import torch
from torch import nn
from torch.nn import functional as F


def _regression(model, shape):
    batch = {"x": torch.randn(*shape)}
    return {"model": model, "batch": batch, "loss_fn": lambda model, batch: model(batch["x"]).square().mean()}


def _module(forward, **layers):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, x):
            return forward(self, x)

    return Policy()


def low_rank_update():
    layers = {"base": nn.Linear(12, 12), "a": nn.Linear(12, 2, bias=False), "b": nn.Linear(2, 12, bias=False)}
    return _regression(_module(lambda m, x: m.base(x) + m.b(m.a(x)), **layers), (8, 12))


def linear_autoencoder_with_a_bottleneck():
    return _regression(nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 3), nn.Linear(3, 8), nn.Linear(8, 16)), (8, 16))


def residual_connections():
    def forward(m, x):
        hidden = m.first(x)
        hidden = hidden + m.second(hidden)
        return m.last(hidden * torch.sigmoid(hidden))

    layers = {"first": nn.Linear(6, 12), "second": nn.Linear(12, 12), "last": nn.Linear(12, 2)}
    return _regression(_module(forward, **layers), (8, 6))


def hidden_features_with_a_second_head():
    def forward(m, x):
        features = m.features(x)
        return m.action(features).sum() + m.value(features).sum()

    layers = {"features": nn.Linear(6, 12), "action": nn.Linear(12, 4), "value": nn.Linear(12, 1)}
    return _regression(_module(forward, **layers), (8, 6))


def hidden_features_that_are_returned():
    def forward(m, x):
        features = m.features(x)
        return features, m.action(features)

    model = _module(forward, features=nn.Linear(6, 12), action=nn.Linear(12, 4))
    loss = {"loss_fn": lambda model, batch: model(batch["x"])[1].square().mean()}
    return _regression(model, (8, 6)) | loss


def queries_keys_and_values_of_heads():
    def forward(m, x):
        hidden = m.embed(x)
        query, key, value = (layer(hidden).view(*x.shape[:2], 2, 8).transpose(1, 2) for layer in (m.q, m.k, m.v))
        mixed = F.scaled_dot_product_attention(query, key, value)
        return m.head(F.gelu(m.out(mixed.transpose(1, 2).flatten(2))))

    layers = {name: nn.Linear(16, 16) for name in ("q", "k", "v", "out")}
    return _regression(_module(forward, embed=nn.Linear(6, 16), head=nn.Linear(16, 2), **layers), (4, 5, 6))


def projection_of_a_tower_and_projector():
    tower = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16))
    model = _module(lambda m, x: m.projector(m.tower(x)), tower=tower, projector=nn.Linear(16, 8))
    return _regression(model, (8, 6))


def probe_on_a_frozen_layer():
    model = nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 2))
    model[0].requires_grad_(False)
    return _regression(model, (8, 6)) | {"batch": {"x": torch.randn(8, 6, requires_grad=True)}}


def activations_in_place():
    def forward(m, x):
        hidden = m.first(x)
        hidden.clamp_(min=0)
        return m.last(m.act(m.second(hidden)))

    layers = {"first": nn.Linear(6, 12), "second": nn.Linear(12, 12), "last": nn.Linear(12, 4)}
    return _regression(_module(forward, act=nn.ReLU(inplace=True), **layers), (8, 6))


def dropout_and_norms_between():
    layers = [nn.Linear(6, 16), nn.Dropout(0.1), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4)]
    return _regression(nn.Sequential(*layers).eval(), (8, 6))


def one_layer_called_again_and_again():
    def forward(m, x):
        for _ in range(4):
            x = m.cell(x)
        return m.head(torch.tanh(x))

    return _regression(_module(forward, cell=nn.Linear(6, 6), head=nn.Linear(6, 2)), (8, 6))


def head_behind_pooling():
    body = nn.Sequential(nn.Linear(6, 16), nn.GELU())
    layers = {"body": body, "projection": nn.Linear(16, 16), "classes": nn.Linear(16, 4)}
    return _regression(_module(lambda m, x: m.classes(m.projection(m.body(x)[:, 0])), **layers), (4, 5, 6))


def depthwise_separable_and_strided_convolutions():
    convolutions = [nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)]
    return _regression(nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)), (4, 3, 6, 6))


def factorised_kernels():
    convolutions = [nn.Conv2d(3, 8, (1, 3), padding=(0, 1)), nn.Conv2d(8, 8, (3, 1), padding=(1, 0))]
    return _regression(nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)), (4, 3, 6, 6))


def embedding_and_merge_of_patches():
    convolutions = [nn.Conv2d(3, 8, 2, stride=2), nn.Conv2d(8, 16, 2, stride=2)]
    return _regression(nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)), (4, 3, 8, 8))
