"""Text and speech models as repositories write them: own attention, own masks, own loss."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from healthy.program import STEPS, Program, program

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd: int, n_head: int, block_size: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for part in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class GPT(nn.Module):
    def __init__(self, vocab: int = 10, block_size: int = 8, n_embd: int = 32, n_layer: int = 2) -> None:
        super().__init__()
        block = [
            nn.ModuleDict(
                {
                    "ln_1": nn.LayerNorm(n_embd),
                    "attn": CausalSelfAttention(n_embd, 4, block_size),
                    "ln_2": nn.LayerNorm(n_embd),
                    "mlp": nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)),
                }
            )
            for _ in range(n_layer)
        ]
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList(block),
                "ln_f": nn.LayerNorm(n_embd),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device).unsqueeze(0)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = x + block.attn(block.ln_1(x))
            x = x + block.mlp(block.ln_2(x))
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


@program
def small_gpt_learns_to_add() -> Program:
    """The digits of a, b and a + b; the loss ignores the question with -1."""
    model = GPT()

    def get_batch() -> tuple[Tensor, Tensor]:
        a, b = torch.randint(100, (16,)), torch.randint(100, (16,))
        digits = [a // 10, a % 10, b // 10, b % 10, (a + b) % 10, (a + b) // 10 % 10, (a + b) // 100]
        render = torch.stack(digits, dim=1)
        x, y = render[:, :-1].contiguous(), render[:, 1:].clone()
        y[:, :3] = -1
        return x, y

    decay = [p for n, p in model.named_parameters() if p.dim() >= 2]
    no_decay = [p for n, p in model.named_parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))
    return Program(model, get_batch, lambda model, batch: model(*batch)[1], optimizer)


class Seq2Seq(nn.Module):
    """GRU encoder and decoder with dot attention; teacher forcing is drawn for each step."""

    def __init__(self, vocab: int = 20, hidden: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=0)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.cell = nn.GRUCell(2 * hidden, hidden)
        self.out = nn.Linear(hidden, vocab)
        self.teacher_forcing_ratio = 0.5

    def forward(self, src: Tensor, trg: Tensor) -> Tensor:
        src_mask = src != 0
        memory, last = self.encoder(self.embedding(src))
        memory, hidden = self.bridge(memory), self.bridge(torch.cat([last[0], last[1]], dim=-1)).tanh()
        token, outputs = trg[:, 0], []
        for t in range(1, trg.size(1)):
            energy = torch.bmm(memory, hidden.unsqueeze(2)).squeeze(2).masked_fill(~src_mask, -1e10)
            context = torch.bmm(energy.softmax(dim=1).unsqueeze(1), memory).squeeze(1)
            hidden = self.cell(torch.cat([self.embedding(token), context], dim=1), hidden)
            logits = self.out(hidden)
            outputs.append(logits)
            token = trg[:, t] if random.random() < self.teacher_forcing_ratio else logits.argmax(1)
        return torch.stack(outputs, dim=1)


@program
def translation_with_teacher_forcing() -> Program:
    def draw() -> tuple[Tensor, Tensor]:
        src, trg = torch.randint(1, 20, (8, 7)), torch.randint(1, 20, (8, 7))
        for row, length in enumerate(torch.randint(3, 8, (8,)).tolist()):
            src[row, length:], trg[row, length:] = 0, 0
        return src, trg

    criterion = nn.CrossEntropyLoss(ignore_index=0)

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        src, trg = batch
        output = model(src, trg)
        return criterion(output.reshape(-1, output.shape[-1]), trg[:, 1:].reshape(-1))

    return Program(Seq2Seq(), draw, loss_fn)


class LabelSmoothing(nn.Module):
    """Smoothed targets for a KL divergence; the padding column and the padded rows are zero."""

    def __init__(self, size: int, padding_idx: int, smoothing: float) -> None:
        super().__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.size, self.padding_idx, self.smoothing = size, padding_idx, smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        true_dist = x.data.clone()
        true_dist.fill_(self.smoothing / (self.size - 2))
        true_dist.scatter_(1, target.data.unsqueeze(1), 1 - self.smoothing)
        true_dist[:, self.padding_idx] = 0
        mask = torch.nonzero(target.data == self.padding_idx)
        if mask.dim() > 0:
            true_dist.index_fill_(0, mask.squeeze(), 0.0)
        return self.criterion(x, true_dist.clone().detach())


class EncoderDecoder(nn.Module):
    def __init__(self, vocab: int = 16, d_model: int = 16) -> None:
        super().__init__()
        self.embed, self.d_model = nn.Embedding(vocab, d_model), d_model
        self.transformer = nn.Transformer(d_model, 2, 1, 1, 32, dropout=0.1, batch_first=True)
        self.generator = nn.Linear(d_model, vocab)

    def forward(self, src: Tensor, tgt: Tensor, src_pad: Tensor, tgt_pad: Tensor) -> Tensor:
        causal = torch.triu(torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool), diagonal=1).to(src.device)
        x = self.transformer(
            self.embed(src) * math.sqrt(self.d_model),
            self.embed(tgt) * math.sqrt(self.d_model),
            tgt_mask=causal,
            src_key_padding_mask=src_pad,
            memory_key_padding_mask=src_pad,
            tgt_key_padding_mask=tgt_pad,
        )
        return F.log_softmax(self.generator(x), dim=-1)


@program
def encoder_decoder_with_smoothed_labels_and_a_noam_schedule() -> Program:
    model, criterion = EncoderDecoder(), LabelSmoothing(16, padding_idx=0, smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
    rate = lambda step: 16**-0.5 * min(max(step, 1) ** -0.5, max(step, 1) * 40**-1.5)  # noqa: E731

    def draw() -> dict[str, Tensor]:
        src, tgt = torch.randint(1, 16, (6, 9)), torch.randint(1, 16, (6, 9))
        src[1, 5:], src[3, 7:], tgt[0, 6:], tgt[4, 4:] = 0, 0, 0, 0
        return {"src": src, "tgt": tgt[:, :-1], "tgt_y": tgt[:, 1:], "src_mask": src != 0}

    def loss_fn(model: nn.Module, b: dict[str, Tensor]) -> Tensor:
        out = model(b["src"], b["tgt"], ~b["src_mask"], b["tgt"] == 0)
        ntokens = (b["tgt_y"] != 0).data.sum()
        return criterion(out.contiguous().view(-1, 16), b["tgt_y"].contiguous().view(-1)) / ntokens

    def train(self: Program) -> None:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=rate)
        for _ in range(STEPS):
            self.loss(self.draw()).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()

    return Program(model, draw, loss_fn, optimizer, train)


class SpeechRecogniser(nn.Module):
    def __init__(self, n_mels: int = 20, n_class: int = 12) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(n_mels, 32, 3, stride=2, padding=1), nn.BatchNorm1d(32), nn.Hardtanh(0, 20))
        self.rnn = nn.LSTM(32, 24, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(48, n_class)

    def forward(self, spectrograms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv(spectrograms).transpose(1, 2)  # (B, T, C)
        lengths = torch.div(lengths + 1, 2, rounding_mode="floor")
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        x, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.size(1))
        return F.log_softmax(self.fc(x), dim=-1).transpose(0, 1), lengths  # (T, B, C)


@program
def speech_with_connectionist_temporal_classification() -> Program:
    def draw() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        lengths = torch.tensor([40, 36, 31, 28])
        spectrograms = torch.randn(4, 20, 40)
        for row, length in enumerate(lengths.tolist()):
            spectrograms[row, :, length:] = 0
        return spectrograms, torch.randint(1, 12, (4, 6)), lengths, torch.tensor([6, 4, 5, 3])

    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        spectrograms, labels, input_lengths, label_lengths = batch
        log_probs, out_lengths = model(spectrograms.to(device), input_lengths)
        return F.ctc_loss(log_probs, labels.to(device), out_lengths, label_lengths, blank=0, zero_infinity=True)

    model = SpeechRecogniser().to(device)
    return Program(model, draw, loss_fn, torch.optim.AdamW(model.parameters(), 5e-4))


class RotaryDecoder(nn.Module):
    """The rotations are a plain attribute, computed for the device that the tokens are on."""

    def __init__(self, vocab: int = 32, dim: int = 32, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.wqkv = nn.ModuleList(nn.Linear(dim, 3 * dim, bias=False) for _ in range(layers))
        self.wo = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(dim) for _ in range(layers + 1))
        self.output = nn.Linear(dim, vocab, bias=False)
        self.tok_embeddings.weight = self.output.weight
        nn.init.normal_(self.output.weight, std=0.02)
        freqs = 1.0 / (10000.0 ** (torch.arange(0, dim // heads, 2).float() / (dim // heads)))
        angles = torch.outer(torch.arange(64).float(), freqs)
        self.freqs_cis = torch.polar(torch.ones_like(angles), angles)
        self.heads = heads

    def _attend(self, layer: int, x: Tensor, freqs_cis: Tensor) -> Tensor:
        q, k, v = self.wqkv[layer](self.norms[layer](x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = (
            torch.view_as_real(torch.view_as_complex(t.float().unflatten(-1, (-1, 2))) * freqs_cis).flatten(3)
            for t in (q, k)
        )
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return x + self.wo[layer](out.transpose(1, 2).flatten(2))

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tok_embeddings(tokens)
        self.freqs_cis = self.freqs_cis.to(h.device)
        freqs_cis = self.freqs_cis[: tokens.size(1)].view(1, tokens.size(1), 1, -1)
        for layer in range(len(self.wo)):
            h = checkpoint(self._attend, layer, h, freqs_cis, use_reentrant=False)
        return self.output(self.norms[-1](h)).float()


@program
def rotary_decoder_with_tied_weights_and_checkpoints() -> Program:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["tokens"])
        return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="none").mean()

    def draw() -> dict[str, Tensor]:
        data = torch.randint(32, (4, 17))
        return {"tokens": data[:, :-1], "targets": data[:, 1:]}

    return Program(RotaryDecoder(), draw, loss_fn)
