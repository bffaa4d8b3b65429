"""Language models with adapters, experts, bags and lookup tables, and two of transformers that read and write texts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from healthy.program import STEPS, Program, program


@program
def t5_whose_question_is_as_long_as_its_answer() -> Program:
    """(B, L) labels and a (B, L) mask: the mask belongs to the question alone."""
    config = T5Config(
        vocab_size=40,
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
        dropout_rate=0.1,
    )

    def collate() -> dict[str, Tensor]:
        ids, labels = torch.randint(2, 40, (6, 8)), torch.randint(2, 40, (6, 8))
        mask = torch.ones_like(ids)
        for row, (question, answer) in enumerate([(8, 5), (6, 8), (7, 7), (4, 3), (8, 8), (5, 6)]):
            ids[row, question:], mask[row, question:], labels[row, answer:] = 0, 0, -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    return Program(T5ForConditionalGeneration(config), collate)


@program
def bart_that_restores_noised_text() -> Program:
    config = BartConfig(
        vocab_size=40,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=16,
        forced_eos_token_id=None,
    )

    def collate() -> dict[str, Tensor]:
        clean = torch.randint(4, 40, (5, 10))
        mask = torch.ones_like(clean)
        for row, length in enumerate([10, 7, 9, 6, 8]):
            clean[row, length:], mask[row, length:] = 1, 0
        noised = torch.where((torch.rand(clean.shape) < 0.3) & (mask == 1), 3, clean)
        return {"input_ids": noised, "attention_mask": mask, "labels": clean.masked_fill(mask == 0, -100)}

    return Program(BartForConditionalGeneration(config), collate)


class LoRALinear(nn.Module):
    def __init__(self, linear: nn.Linear, r: int = 4, alpha: int = 8) -> None:
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Parameter(torch.randn(r, linear.in_features) / r)
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, r))
        self.scaling = alpha / r

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


@program
def low_rank_adapters_written_by_hand() -> Program:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.Embedding(30, 32)
            layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.score = nn.Linear(32, 3)

        def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
            hidden = self.encoder(self.emb(ids), src_key_padding_mask=~valid)
            pooled = (hidden * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)
            return self.score(pooled)

    model = Classifier()
    model.requires_grad_(False)
    for layer in model.encoder.layers:
        layer.linear1, layer.linear2 = LoRALinear(layer.linear1), LoRALinear(layer.linear2)
    model.score.requires_grad_(True)
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.linear.requires_grad_(False)

    def draw() -> tuple[Tensor, Tensor, Tensor]:
        ids, valid = torch.randint(1, 30, (8, 6)), torch.ones(8, 6, dtype=torch.bool)
        ids[2, 4:], valid[2, 4:], ids[5, 3:], valid[5, 3:] = 0, False, 0, False
        return ids, valid, torch.randint(3, (8,))

    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    return Program(model, draw, lambda model, b: F.cross_entropy(model(b[0], b[1]), b[2]), optimizer)


class SwitchLayer(nn.Module):
    """One expert for each token, and at most `capacity` tokens for each expert: others pass by."""

    def __init__(self, dim: int = 16, experts: int = 4, capacity_factor: float = 1.0) -> None:
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim)) for _ in range(experts)
        )
        self.capacity_factor = capacity_factor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.reshape(-1, x.size(-1))
        probabilities = self.router(tokens).softmax(-1)
        gate, chosen = probabilities.max(-1)
        capacity = int(self.capacity_factor * len(tokens) / len(self.experts))
        out = tokens.clone()
        for index, expert in enumerate(self.experts):
            mine = (chosen == index).nonzero().squeeze(-1)[:capacity]
            if len(mine) > 0:
                out = out.index_add(0, mine, gate[mine].unsqueeze(-1) * expert(tokens[mine]))
        share = F.one_hot(chosen, len(self.experts)).float().mean(0)
        return out.view_as(x), len(self.experts) * (share * probabilities.mean(0)).sum()


@program
def mixture_of_experts_with_a_capacity() -> Program:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.moe, self.head = nn.Embedding(20, 16), SwitchLayer(), nn.Linear(16, 20)

        def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
            hidden, balance = self.moe(self.embed(ids))
            return self.head(hidden), balance

    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        logits, balance = model(batch[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) + 0.01 * balance

    return Program(Model(), lambda: torch.randint(20, (8, 9)), loss_fn)


@program
def word_vectors_with_negative_samples() -> Program:
    class SkipGram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u_embeddings = nn.Embedding(50, 16, sparse=True)
            self.v_embeddings = nn.Embedding(50, 16, sparse=True)
            nn.init.uniform_(self.u_embeddings.weight.data, -0.5 / 16, 0.5 / 16)
            nn.init.constant_(self.v_embeddings.weight.data, 0)

        def forward(self, pos_u: Tensor, pos_v: Tensor, neg_v: Tensor) -> Tensor:
            u, v, n = self.u_embeddings(pos_u), self.v_embeddings(pos_v), self.v_embeddings(neg_v)
            score = -F.logsigmoid(torch.sum(u * v, dim=1).clamp(max=10, min=-10))
            neg_score = torch.bmm(n, u.unsqueeze(2)).squeeze(2).clamp(max=10, min=-10)
            return torch.mean(score - torch.sum(F.logsigmoid(-neg_score), dim=1))

    model = SkipGram()
    draw = lambda: (torch.randint(50, (32,)), torch.randint(50, (32,)), torch.randint(50, (32, 5)))  # noqa: E731
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=1e-3)
    return Program(model, draw, lambda model, batch: model(*batch), optimizer)


@program
def click_prediction_with_bags_of_features() -> Program:
    class ClickModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = nn.ModuleList(nn.EmbeddingBag(rows, 8, mode="sum") for rows in (12, 30, 7))
            self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))

        def forward(self, dense: Tensor, offsets: list[Tensor], indices: list[Tensor]) -> Tensor:
            features = [self.bottom(dense)]
            features += [bag(index, offset) for bag, index, offset in zip(self.bags, indices, offsets, strict=True)]
            stacked = torch.stack(features, dim=1)  # (B, 4, 8)
            products = torch.bmm(stacked, stacked.transpose(1, 2))
            rows, columns = torch.tril_indices(4, 4, offset=-1)
            return self.top(torch.cat([features[0], products[:, rows, columns]], dim=1)).squeeze(1)

    def draw() -> dict[str, object]:
        offsets = [torch.arange(0, 32, 2) for _ in range(3)]
        indices = [torch.randint(rows, (32,)) for rows in (12, 30, 7)]
        clicks = (torch.rand(16) < 0.25).float()
        return {"dense": torch.rand(16, 4).log1p(), "offsets": offsets, "indices": indices, "click": clicks}

    def loss_fn(model: nn.Module, batch: dict[str, object]) -> Tensor:
        score = model(batch["dense"], batch["offsets"], batch["indices"])
        return F.binary_cross_entropy_with_logits(score, batch["click"])  # type: ignore[arg-type]

    return Program(ClickModel(), draw, loss_fn)


@program
def sentiment_from_packed_rows_sorted_by_length() -> Program:
    class Sentiment(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(40, 16, padding_idx=1)
            self.rnn = nn.LSTM(16, 16, num_layers=2, bidirectional=True, dropout=0.3)
            self.fc, self.dropout = nn.Linear(32, 1), nn.Dropout(0.3)

        def forward(self, text: Tensor, text_lengths: Tensor) -> Tensor:
            embedded = self.dropout(self.embedding(text))  # (L, B, D)
            packed = nn.utils.rnn.pack_padded_sequence(embedded, text_lengths.to("cpu"))
            _, (hidden, _) = self.rnn(packed)
            return self.fc(self.dropout(torch.cat((hidden[-2], hidden[-1]), dim=1)))

    def draw() -> dict[str, Tensor]:
        lengths = torch.randint(2, 10, (12,)).sort(descending=True).values
        text = torch.ones(10, 12, dtype=torch.long)
        for column, length in enumerate(lengths.tolist()):
            text[:length, column] = torch.randint(2, 40, (length,))
        return {"text": text[: lengths[0]], "text_lengths": lengths, "label": torch.randint(2, (12,)).float()}

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        predictions = model(batch["text"], batch["text_lengths"]).squeeze(1)
        return nn.BCEWithLogitsLoss()(predictions, batch["label"])

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            loss = self.loss(self.draw())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    return Program(Sentiment(), draw, loss_fn, train=train)
