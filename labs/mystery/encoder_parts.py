"""Templates of `policy.py`: the forms of the image tower and of the instruction encoder."""

from __future__ import annotations

TOWERS = {
    "conv": '''
class $Tower(nn.Module):
    """Images (B, 3, S, S) to one feature each, (B, D): two convolutions, each with a GELU."""

    def __init__(self, config: $Config) -> None:
        super().__init__()
        width = config.$width
        self.first = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.second = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.out = nn.Linear(16 * width, width)

    def forward(self, image: Tensor) -> Tensor:
        maps = F.gelu(self.first(image))
        maps = F.gelu(self.second(maps))  # (B, D, S/4, S/4)
        return self.out(maps.flatten(1))
''',
    "batchnorm": '''
class $Tower(nn.Module):
    """Images (B, 3, S, S) to one feature each, (B, D): a convolution, then one that adds to its input."""

    def __init__(self, config: $Config) -> None:
        super().__init__()
        width = config.$width
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.norm = nn.BatchNorm2d(width)
        self.inner = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Linear(16 * width, width)

    def forward(self, image: Tensor) -> Tensor:
        maps = F.relu(self.norm(self.stem(image)))  # (B, D, S/4, S/4)
        maps = maps + F.relu(self.inner(maps))
        return self.out(maps.flatten(1))
''',
    "patches": '''
class $Block(nn.Module):
    """Attention between the patches, then two layers with a GELU. Both add to their input, (B, P, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_in = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm_out = nn.LayerNorm(width)
        self.grow = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)

    def forward(self, patches: Tensor) -> Tensor:
        query = self.norm_in(patches)
        patches = patches + self.attend(query, query, query, need_weights=False)[0]
        hidden = F.gelu(self.grow(self.norm_out(patches)))
        return patches + self.shrink(hidden)


class $Tower(nn.Module):
    """Images (B, 3, S, S) to one feature each, (B, D), by way of 16 patches with a position each."""

    def __init__(self, config: $Config) -> None:
        super().__init__()
        width = config.$width
        self.patchify = nn.Conv2d(3, width, 4, stride=4)
        self.position = nn.Parameter(0.1 * torch.randn(16, width))
        self.blocks = nn.ModuleList([$Block(width) for _ in range(2)])
        self.norm = nn.LayerNorm(width)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.patchify(image).flatten(2).transpose(1, 2)  # (B, P, D)
        patches = patches + self.position
        for block in self.blocks:
            patches = block(patches)
        return self.norm(patches).mean(dim=1)
''',
    "siglip": '''
class $Tower(nn.Module):
    """Images (B, 3, S, S) to one feature each, (B, D): a small SigLIP tower."""

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.tower = SiglipVisionModel(
            SiglipVisionConfig(
                hidden_size=config.$width,
                intermediate_size=2 * config.$width,
                num_hidden_layers=2,
                num_attention_heads=2,
                image_size=IMAGE_SIZE,
                patch_size=4,
                vision_use_head=False,
            )
        )
        self.out = nn.Linear(config.$width, config.$width)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.tower(pixel_values=image).last_hidden_state  # (B, P, D)
        return self.out(patches.mean(dim=1))
''',
}

_LLAMA = '''
class $Text(nn.Module):
    """Tokens (B, L) to one feature for each instruction, (B, D): a small Llama's last token.

    An instruction may have no token: its feature is then of no meaning, but finite.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.model = LlamaModel(
            LlamaConfig(
                vocab_size=len(VOCABULARY),
                hidden_size=config.$width,
                intermediate_size=2 * config.$width,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                initializer_range=0.3,
                pad_token_id=PAD,
                use_cache=False,
            )
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        $words = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids_from_mask(attention_mask),
        ).last_hidden_state  # (B, L, D)
'''

TEXTS = {
    "mean": '''
class $Text(nn.Module):
    """Tokens (B, L) to one feature for each instruction, (B, D): the mean of its tokens.

    An instruction may have no token: its feature is then of no meaning, but finite.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), config.$width)
        self.out = nn.Linear(config.$width, config.$width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        $words = self.embed(input_ids)  # (B, L, D)
        weight = attention_mask.unsqueeze(-1).float()  # (B, L, 1)
        total = ($words * weight).sum(dim=1)
        return self.out(total / weight.sum(dim=1).clamp(min=1.0))
''',
    "gru": '''
class $Text(nn.Module):
    """Tokens (B, L) to one feature for each instruction, (B, D): a GRU's state after its last token.

    An instruction may have no token: its feature is then of no meaning, but finite.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), config.$width)
        self.gru = nn.GRU(config.$width, config.$width, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        $words, _ = self.gru(self.embed(input_ids))  # (B, L, D)
        last = (attention_mask.sum(dim=1) - 1).clamp(min=0)  # (B,)
        return $words[torch.arange(len(last)), last]
''',
    "attention": '''
class $Text(nn.Module):
    """Tokens (B, L) to one feature for each instruction, (B, D): a learnt mean of its tokens.

    An instruction may have no token: its feature is then of no meaning, but finite.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), config.$width)
        self.score = nn.Linear(config.$width, 1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        $words = self.embed(input_ids)  # (B, L, D)
        score = self.score($words).squeeze(-1)  # (B, L)
        score = score.masked_fill(attention_mask == 0, -1e4)
        weight = score.softmax(dim=-1)  # (B, L)
        return ($words * weight.unsqueeze(-1)).sum(dim=1)
''',
    "llama": _LLAMA
    + """        last = (attention_mask.sum(dim=1) - 1).clamp(min=0)  # (B,)
        return $words[torch.arange(len(last)), last]
""",
}
"""For instructions that are padded on the right."""

TEXTS_FROM_THE_LEFT = {
    **TEXTS,
    "gru": '''
class $Text(nn.Module):
    """Tokens (B, L) to one feature for each instruction, (B, D): a GRU's state after its last token.

    Padding leaves the state as it is. An instruction may have no token: its feature is then of no meaning, but finite.
    """

    def __init__(self, config: $Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), config.$width)
        self.cell = nn.GRUCell(config.$width, config.$width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        $words = self.embed(input_ids)  # (B, L, D)
        memory = torch.zeros_like($words[:, 0])  # (B, D)
        for column in range(input_ids.shape[1]):
            read = self.cell($words[:, column], memory)
            memory = torch.where(attention_mask[:, column, None] > 0, read, memory)
        return memory
''',
    "llama": _LLAMA
    + """        return $words[:, -1]
""",
}
"""For instructions that are padded on the left."""
