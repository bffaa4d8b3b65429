"""Views that merge and split in order, views of axes that were moved before, and sizes that are equal by chance."""

import torch
import torch.nn.functional as F
import transformers
from torch import nn

from image_loop import loop_over_images


def _program(forward, x, **layers):
    """A model whose `forward(model, x)` uses the layers; each returns a tensor of any shape."""
    return {
        "model": _Model(forward, layers),
        "batch": {"x": x},
        "loss_fn": lambda model, batch: model(batch["x"]).float().square().mean(),
    }


class _Model(nn.Module):
    def __init__(self, forward, layers):
        super().__init__()
        self.steps = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x):
        return self.steps(self, x)


def permute_before_the_reshape():
    def forward(m, x):
        b, h, w, c = x.shape
        x = m.conv(x.permute(0, 3, 1, 2).reshape(b, c, h, w))
        x = x.permute(0, 2, 3, 1).reshape(b, -1, 8)
        return m.head(x)

    return _program(forward, torch.randn(2, 12, 10, 3), conv=nn.Conv2d(3, 8, 3), head=nn.Linear(8, 2))


def windows_and_back():
    """As in a Swin: as many windows as channels, and windows with as many tokens."""

    def forward(m, x):
        x = m.embed(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        windows = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        y = m.attend(windows, windows, windows)[0].view(-1, 4, 4, c)
        y = y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h * w, c)
        return m.head(x.reshape(b, h * w, c) + m.norm(y))

    return _program(
        forward,
        torch.randn(2, 3, 32, 32),
        embed=nn.Conv2d(3, 16, 2, stride=2),
        attend=nn.MultiheadAttention(16, 4, batch_first=True),
        norm=nn.LayerNorm(16),
        head=nn.Linear(16, 3),
    )


def heads_in_both_orders():
    def forward(m, x):
        b, t, d = x.shape
        q, k, v = (one.view(b, t, 4, -1).transpose(1, 2) for one in m.qkv(x).chunk(3, -1))
        x = m.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous().view(b, t, d))
        x = x.transpose(0, 1)  # (T, B, D) from here
        q, k, v = (one.contiguous().view(t, b * 4, d // 4).transpose(0, 1) for one in m.qkv(x).chunk(3, -1))
        weights = torch.bmm(q, k.transpose(1, 2)).softmax(-1)
        y = torch.bmm(weights, v).transpose(0, 1).contiguous().view(t, b, d)
        return m.out(y.transpose(0, 1))

    return _program(forward, torch.randn(2, 8, 16), qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))


def heads_with_an_axis_of_samples_and_heads():
    """(B * heads, T, d) -> (B, heads, T, d) -> (B, T, heads * d)."""

    def forward(m, x):
        b, t, _ = x.shape
        q, k, v = (m.qkv(x).view(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4).reshape(3, b * 4, t, 4)).unbind(0)
        y = (q @ k.mT).softmax(-1) @ v
        return m.out(y.view(b, 4, t, 4).permute(0, 2, 1, 3).flatten(2))

    return _program(forward, torch.randn(2, 8, 16), qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))


def as_many_heads_as_tokens():
    def forward(m, x):
        q, k, v = (one.view(2, 4, 4, 4) for one in m.qkv(x).chunk(3, -1))  # (B, T, heads, d): which axis is which?
        return m.out(F.scaled_dot_product_attention(q, k, v).reshape(2, 4, 16))

    return _program(forward, torch.randn(2, 4, 16), qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))


def layers_of_torch():
    def forward(m, x):
        x = m.encoder(m.embed(x))
        y, (state, _) = m.rnn(x)
        return torch.cat([y.mean(1), state[-1]], -1)

    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    return _program(
        forward,
        torch.randn(2, 8, 5),
        embed=nn.Linear(5, 16),
        encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        rnn=nn.LSTM(16, 6, 2, batch_first=True, bidirectional=True),
    )


def transformer_with_time_first():
    def forward(m, x):
        source, target = x.transpose(0, 1), x[:, :3].transpose(0, 1)
        return m.transformer(source, target).transpose(0, 1).reshape(len(x), -1)

    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24), 1, enable_nested_tensor=False)
    transformer = nn.Transformer(16, 4, 1, 1, 24, custom_encoder=encoder)
    return _program(forward, torch.randn(2, 8, 16), transformer=transformer)


def patches_by_reshape():
    """16 patches of 4 x 4 pixels: as many patches as rows of the image."""

    def forward(m, x):
        b, c, h, w = x.shape
        patches = x.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 16 * c)
        y = m.embed(patches)
        y = m.head(y).view(b, h // 4, w // 4, 4, 4, c)
        return y.permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w) - x

    return _program(forward, torch.randn(2, 3, 16, 16), embed=nn.Linear(48, 16), head=nn.Linear(16, 48))


def pixel_shuffle_by_hand():
    def forward(m, x):
        x = m.conv(x)
        b, c, h, w = x.shape
        y = x.view(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // 4, 2 * h, 2 * w)
        z = y.view(b, c // 4, h, 2, w, 2).permute(0, 1, 3, 5, 2, 4).reshape(b, c, h, w)
        return m.out(z) + m.out(F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2))

    return _program(forward, torch.randn(2, 3, 8, 6), conv=nn.Conv2d(3, 16, 3, padding=1), out=nn.Conv2d(16, 2, 1))


def channel_shuffle():
    def forward(m, x):
        x = m.conv(x)
        b, c, h, w = x.shape
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return m.out(x)

    return _program(forward, torch.randn(2, 3, 8, 6), conv=nn.Conv2d(3, 12, 3), out=nn.Conv2d(12, 6, 3, groups=2))


def group_norm_by_hand():
    def forward(m, x):
        x = m.conv(x)
        b, c, h, w = x.shape
        groups = x.view(b, 4, -1)
        groups = (groups - groups.mean(-1, keepdim=True)) / groups.std(-1, keepdim=True)
        return m.out(groups.view(b, c, h, w)) + m.out(x.reshape(b * 4, c // 4, h, w).tanh().view(b, c, h, w))

    return _program(forward, torch.randn(2, 3, 8, 6), conv=nn.Conv2d(3, 8, 3), out=nn.Conv2d(8, 2, 1))


def batch_folded_into_the_channels():
    """A convolution with weights of each sample, as in StyleGAN2."""

    def forward(m, x):
        x = m.conv(x)
        b, c, h, w = x.shape
        weight = m.weights(x.mean((2, 3))).view(b * 6, c, 1, 1)
        y = F.conv2d(x.view(1, b * c, h, w), weight, groups=b)
        return m.out(y.view(b, 6, h, w))

    return _program(
        forward,
        torch.randn(4, 3, 8, 6),
        conv=nn.Conv2d(3, 8, 3),
        weights=nn.Linear(8, 48),
        out=nn.Conv2d(6, 2, 1),
    )


def flatten_before_a_layer():
    return _program(
        lambda m, x: m.head(m.conv(x).flatten(1)),
        torch.randn(2, 3, 6, 8),
        conv=nn.Conv2d(3, 8, 3),
        head=nn.Linear(8 * 4 * 6, 3),
    )


def vector_of_a_decoder_as_feature_map():
    """The vector has no channels before: as many channels as columns of its input."""
    return _program(
        lambda m, x: m.conv(m.layer(x).unflatten(-1, (8, 4, 6))),
        torch.randn(4, 8),
        layer=nn.Linear(8, 192),
        conv=nn.ConvTranspose2d(8, 3, 2, stride=2),
    )


def vector_split_in_another_way():
    """(60,) -> (12, 5) -> (5, 12): the first split means nothing."""
    return _program(
        lambda m, x: m.conv(x.view(-1, 12, 5).relu().view(-1, 5, 12)), torch.randn(4, 60), conv=nn.Conv1d(5, 4, 3)
    )


def action_chunks():
    """As many steps as samples, and numbers of the action."""

    def forward(m, x):
        actions = m.head(m.body(x)).view(-1, 6, 7)
        return m.smooth(actions.transpose(1, 2)).transpose(1, 2).reshape(-1, 6 * 7) + m.head(m.body(x))

    return _program(
        forward,
        torch.randn(7, 5),
        body=nn.Linear(5, 12),
        head=nn.Linear(12, 42),
        smooth=nn.Conv1d(7, 7, 3, padding=1),
    )


def samples_and_steps_in_one_axis():
    """(T, B, ...) and (B, T, ...), both to one axis and back, with as many steps as channels."""

    def forward(m, x):
        b, t, c, h, w = x.shape
        y = m.conv(x.reshape(b * t, c, h, w)).mean((2, 3)).view(b, t, -1)
        z = m.conv(x.transpose(0, 1).reshape(t * b, c, h, w)).mean((2, 3)).view(t, b, -1).transpose(0, 1)
        return m.head((y + z).reshape(b * t, -1)).view(b, t, -1)

    return _program(forward, torch.randn(2, 8, 3, 6, 6), conv=nn.Conv2d(3, 8, 3), head=nn.Linear(8, 2))


def tokens_of_a_mixture_of_experts():
    def forward(m, x):
        b, t, _ = x.shape
        flat = m.embed(x).view(-1, 8)
        weights = m.router(flat).softmax(-1)
        experts = torch.stack([m.one(flat), m.other(flat)], 1)
        return m.head((weights[..., None] * experts).sum(1).view(b, t, -1))

    layers = {"embed": nn.Linear(6, 8), "router": nn.Linear(8, 2), "one": nn.Linear(8, 8), "other": nn.Linear(8, 8)}
    return _program(forward, torch.randn(4, 8, 6), head=nn.Linear(8, 2), **layers)


def rotary_positions_as_complex_numbers():
    def forward(m, x):
        b, t, d = x.shape
        q = m.q(x).view(b, t, 4, 4)
        turned = torch.view_as_complex(q.reshape(b, t, 4, 2, 2)) * torch.polar(torch.ones(t, 1, 2), torch.ones(t, 1, 2))
        q = torch.view_as_real(turned).flatten(3).transpose(1, 2)
        return m.out(F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(b, t, d))

    return _program(forward, torch.randn(2, 8, 16), q=nn.Linear(16, 16), out=nn.Linear(16, 16))


def counted_to_and_fro():
    """The second `view` is the inverse of the first: an order in which values are mixed in between."""

    def forward(m, x):
        x = m.conv(x)
        b, c, length = x.shape
        y = x.reshape(b, length, c).cumsum(1).reshape(b, c, length)
        return m.head(y.transpose(1, 2))

    return _program(forward, torch.randn(2, 3, 12), conv=nn.Conv1d(3, 8, 3, padding=1), head=nn.Linear(8, 2))


def layer_over_places_with_as_many_places_as_channels():
    """A mixer over 8 x 2 places of 16 channels."""
    return _program(
        lambda m, x: m.mix(m.conv(x).flatten(2)).view(-1, 16, 8, 2),
        torch.randn(3, 3, 8, 2),
        conv=nn.Conv2d(3, 16, 1),
        mix=nn.Linear(16, 16),
    )


def states_of_recurrent_layers():
    """One layer, directions that are concatenated, and layers that are moved behind the samples."""

    def forward(m, x):
        _, one = m.one(x)
        _, (two, _) = m.two(x)
        both = torch.cat([two[-2], two[-1]], -1)
        ends = two.view(2, 2, len(x), 6)[-1].transpose(0, 1).reshape(len(x), -1)
        return m.head(torch.cat([one.view(len(x), -1), both, ends, two.permute(1, 0, 2).reshape(len(x), -1)], -1))

    return _program(
        forward,
        torch.randn(3, 7, 5),
        one=nn.GRU(5, 6, batch_first=True),
        two=nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True),
        head=nn.Linear(6 + 12 + 12 + 24, 2),
    )


def outputs_of_a_recurrent_layer_with_time_first():
    def forward(m, x):
        t, b, _ = x.shape
        y, _ = m.rnn(x)
        return m.head(y.view(t * b, -1)).view(t, b, -1)

    return _program(forward, torch.randn(7, 4, 5), rnn=nn.LSTM(5, 7), head=nn.Linear(7, 4))


def relative_shift_of_scores():
    """Transformer-XL counts on purpose: (T, T + 1) becomes (T + 1, T), and its first row is left out."""

    def forward(m, x):
        b, t, d = x.shape
        q, k, v = (one.view(b, t, 2, -1).transpose(1, 2) for one in m.qkv(x).chunk(3, -1))
        places = q @ m.places.weight[:t].view(t, 2, -1).permute(1, 2, 0)
        padded = F.pad(places, (1, 0))
        shifted = padded.view(b, 2, t + 1, t)[:, :, 1:].view_as(places)
        weights = (q @ k.mT + shifted).softmax(-1)
        return m.out((weights @ v).transpose(1, 2).reshape(b, t, d))

    return _program(forward, torch.randn(2, 7, 8), qkv=nn.Linear(8, 24), places=nn.Embedding(9, 8), out=nn.Linear(8, 8))


def heads_joined_by_einsum():
    def forward(m, x):
        q, k, v = (layer(x).view(2, 6, 4, 2) for layer in (m.q, m.k, m.v))
        weights = torch.einsum("bthd,bshd->bhts", q, k).softmax(-1)
        joined = torch.einsum("bhts,bshd->bthd", weights, v).reshape(2, 6, 8)
        apart = torch.einsum("bhts,bshd->bhtd", weights, v)
        return m.out(joined) + torch.einsum("bhtd,hdo->bto", apart, m.out.weight.t().view(4, 2, 3))

    layers = {name: nn.Linear(8, 8) for name in "qkv"}
    return _program(forward, torch.randn(2, 6, 8), out=nn.Linear(8, 3), **layers)


def micro_batches():
    """(16, 4) to (4, 4, 4), and to (4, 16): the same samples in parts, and each part as one vector."""

    def forward(m, x):
        parts = torch.stack([m.layer(part) for part in x.view(4, 4, 4)])
        return parts.view(16, -1).mean() + m.head(x.view(4, 16)).mean()

    return _program(forward, torch.randn(16, 4), layer=nn.Linear(4, 3), head=nn.Linear(16, 2))


def patches_of_each_channel():
    """12 steps of 4 channels, as 12 patches of 4 steps: one channel after the other."""

    def forward(m, x):
        x = x.transpose(1, 2)
        x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        return m.embed(x.reshape(len(x), -1, 4))

    return _program(forward, torch.randn(3, 12, 4), embed=nn.Linear(4, 5))


def neighbouring_tokens_merged():
    """4 images of 8 tokens: 4 neighbours become one."""

    def forward(m, x):
        x = m.embed(x)
        return m.out(x.view(len(x), -1, 4 * 6))

    return _program(forward, torch.randn(2, 4, 8, 3), embed=nn.Linear(3, 6), out=nn.Linear(24, 5))


def groups_of_channels_as_codes():
    """16 x 6 x 8 places in 16 groups, as many as channels."""

    def forward(m, x):
        x = m.conv(x)
        return m.code(x.view(len(x), 4, 4 * 6 * 8)) + m.code(x.view(len(x), 4, -1))

    return _program(forward, torch.randn(2, 3, 6, 8), conv=nn.Conv2d(3, 16, 1), code=nn.Linear(4 * 6 * 8, 5))


def masks_and_indices():
    """A result that no layer reads: the order of a mask."""

    def forward(m, x):
        mask = (x > 0).view(len(x), 5, 12)
        return m.layer(x) * mask.float().mean()

    return _program(forward, torch.randn(3, 12, 5), layer=nn.Linear(5, 2))


def scores_in_the_loss():
    def forward(m, x):
        scores, pixels = m.head(x), m.conv(x[:, None])
        labels = torch.zeros(4, 7, dtype=torch.long)
        loss = F.cross_entropy(scores.view(-1, 9), labels.view(-1)) + F.cross_entropy(scores.transpose(1, 2), labels)
        return loss + F.cross_entropy(
            pixels.permute(0, 2, 3, 1).reshape(-1, 9), torch.zeros(4 * 7 * 3, dtype=torch.long)
        )

    return _program(forward, torch.randn(4, 7, 3), head=nn.Linear(3, 9), conv=nn.Conv2d(1, 9, 1))


def several_views_in_the_batch():
    def forward(m, x):
        b, n = x.shape[:2]
        x = m.conv(x.flatten(0, 1).permute(0, 3, 1, 2).float() / 255).mean((2, 3))
        return m.head(x.view(b, n * 8))

    x = torch.randint(0, 255, (4, 2, 16, 16, 3), dtype=torch.uint8)
    return _program(forward, x, conv=nn.Conv2d(3, 8, 3), head=nn.Linear(16, 3))


def rows_and_columns_as_samples_of_recurrent_layers():
    """Dual-path: as many chunks as steps in a chunk, in one axis with the samples."""

    def forward(m, x):
        x = m.conv(x)
        b, n, k, s = x.shape
        y = x.permute(0, 3, 2, 1).contiguous().view(b * s, k, n)
        y = m.project(m.inside(y)[0].reshape(b * s * k, -1)).view(b, s, k, n).permute(0, 3, 2, 1)
        z = y.permute(0, 2, 3, 1).contiguous().view(b * k, s, n)
        _, state = m.across(z)
        return y.mean() + m.project(state.view(2, b, k, n).transpose(0, 1).reshape(b, 2, k * n)[..., : 2 * n])

    return _program(
        forward,
        torch.randn(2, 3, 8, 8),
        conv=nn.Conv2d(3, 6, 1),
        inside=nn.LSTM(6, 6, batch_first=True, bidirectional=True),
        across=nn.GRU(6, 6, 2, batch_first=True),
        project=nn.Linear(12, 6),
    )


def joints_of_several_people():
    """(N, C, T, V, M), and a norm over joints and channels in one axis."""

    def forward(m, x):
        n, c, t, v, people = x.shape
        x = x.permute(0, 4, 3, 1, 2).contiguous().view(n * people, v * c, t)
        x = m.norm(x).view(n, people, v, c, t).permute(0, 1, 3, 4, 2).contiguous().view(n * people, c, t, v)
        y = m.conv(x)
        y = y.view(n * people, 2, 4, t, v)
        y = torch.einsum("nkctv,kvw->nctw", y, torch.ones(2, v, v)).contiguous()
        return m.head(y.mean((2, 3)).view(n, people, -1).mean(1))

    return _program(
        forward, torch.randn(2, 3, 8, 4, 2), norm=nn.BatchNorm1d(12), conv=nn.Conv2d(3, 8, 1), head=nn.Linear(4, 2)
    )


def heads_in_the_axis_of_the_samples():
    """(B, heads * 3 * d, H * W) -> (B * heads, 3 * d, H * W), with as many samples and heads as features."""

    def forward(m, x):
        b, _, *size = x.shape
        x = m.conv(x).flatten(2)
        q, k, v = m.qkv(x).reshape(b * 4, 12, -1).chunk(3, 1)
        weights = torch.einsum("bct,bcs->bts", q, k).softmax(-1)
        y = torch.einsum("bts,bcs->bct", weights, v).reshape(b, -1, x.shape[-1])
        return (x + m.out(y)).reshape(b, 16, *size)

    return _program(
        forward,
        torch.randn(12, 3, 4, 3),
        conv=nn.Conv2d(3, 16, 1),
        qkv=nn.Conv1d(16, 48, 1),
        out=nn.Conv1d(16, 16, 1),
    )


def _hidden(model, **inputs):
    return {
        "model": model,
        "batch": inputs,
        "loss_fn": lambda model, batch: model(**batch).last_hidden_state.square().mean(),
    }


def segformer():
    """Tokens become an image by `reshape` and `permute` between its stages."""
    sizes = {"hidden_sizes": [16, 16, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}
    return _hidden(
        transformers.SegformerModel(transformers.SegformerConfig(**sizes)), pixel_values=torch.randn(2, 3, 64, 64)
    )


def longformer():
    """Its chunks of scores are padded and counted as if they were transposed."""
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.LongformerConfig(
        **sizes, intermediate_size=48, attention_window=4, max_position_embeddings=64
    )
    return _hidden(transformers.LongformerModel(config), input_ids=torch.randint(5, 90, (3, 16)))


def xlnet():
    """Its scores for relative positions get another shape, and the first row is left out."""
    config = transformers.XLNetConfig(vocab_size=99, d_model=32, n_layer=1, n_head=4, d_inner=48)
    return _hidden(transformers.XLNetModel(config), input_ids=torch.randint(5, 90, (3, 8)))


def swin_of_transformers():
    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4]}
    config = transformers.SwinConfig(**sizes, window_size=4)
    return _hidden(transformers.SwinModel(config), pixel_values=torch.randn(2, 3, 32, 32))


def in_a_live_loop():
    program = windows_and_back()

    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(2, 3, 32, 32)).square().mean().backward()
            optimizer.step()

    return {"model": program["model"], "optimizer": torch.optim.SGD(program["model"].parameters(), 0.01), "loop": loop}


def image_of_a_data_set_that_is_permuted():
    return loop_over_images(lambda image: image.permute(2, 0, 1).reshape(3, 12, 10))


def image_of_a_data_set_that_is_viewed_and_viewed_back():
    return loop_over_images(lambda image: image.view(12, 10, 3).view(3, 12, 10), sizes=(3, 12, 10))


def pixels_of_a_data_set_in_rows():
    return loop_over_images(lambda image: image.reshape(-1, 3), channels=0)


def image_of_a_data_set_with_as_many_rows_and_columns_as_channels():
    return loop_over_images(lambda image: image.view(8, 8, 8), sizes=(8, 8, 8), channels=8)


def patches_of_an_image_in_a_data_set():
    def patches(image):
        return image.reshape(3, 4, 5, 2, 3).permute(0, 2, 1, 3, 4).reshape(15, 24).unflatten(0, (3, 5)).permute(2, 0, 1)

    return loop_over_images(patches, channels=24)
