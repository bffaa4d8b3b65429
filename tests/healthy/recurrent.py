"""Recurrent networks: packed sequences, a state carried from one piece of text to the next, cells in a loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from healthy.program import STEPS, Program, program


class PackedTagger(nn.Module):
    """An LSTM in both directions over packed sequences, one tag for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.tag = nn.Linear(32, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            self.words(input_ids), attention_mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=input_ids.shape[1])
        return self.tag(hidden)  # (B, L, tags)


def tagged() -> dict[str, Tensor]:
    """Four sequences of ids with a tag for each, padded on the right."""
    valid = torch.arange(7) < torch.tensor([[7], [4], [6], [3]])
    return {
        "input_ids": torch.randint(1, 30, (4, 7)) * valid,
        "attention_mask": valid.long(),
        "labels": torch.randint(4, (4, 7)).masked_fill(~valid, -100),
    }


def tagging_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross entropy over the steps that have a tag."""
    logits = model(batch["input_ids"], batch["attention_mask"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


@program
def lstm_over_packed_sequences() -> Program:
    return Program(PackedTagger(), tagged, tagging_loss)


@program
def gru_whose_state_is_carried_on() -> Program:
    """Truncated backpropagation through time: the state is detached between pieces, on purpose."""

    class Carried(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 16, batch_first=True)
            self.head = nn.Linear(16, 2)

        def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
            hidden, state = self.gru(x, state)
            return self.head(hidden), state.detach()

    model = Carried()

    def draw() -> tuple[Tensor, Tensor]:
        return torch.randn(4, 6, 3), torch.randn(4, 6, 2)

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.mse_loss(model(batch[0])[0], batch[1])

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        state = None
        for _ in range(STEPS):
            x, y = self.draw()
            self.optimizer.zero_grad()
            action, state = model(x, state)
            F.mse_loss(action, y).backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            self.optimizer.step()

    return Program(model, draw, loss_fn, train=train)


@program
def vanilla_rnn_and_a_cell_in_a_loop() -> Program:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(3, 16, batch_first=True, nonlinearity="relu")
            self.cell = nn.LSTMCell(16, 16)
            self.head = nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden, _ = self.rnn(x)
            state = (x.new_zeros(len(x), 16), x.new_zeros(len(x), 16))
            for step in hidden.unbind(1):
                state = self.cell(step, state)
            return self.head(state[0])

    return Program(
        Loop(),
        lambda: {"x": torch.randn(8, 6, 3), "y": torch.randn(8, 2)},
        lambda model, batch: F.mse_loss(model(batch["x"]), batch["y"]),
    )


@program
def learnt_first_state_and_layer_norm() -> Program:
    class Learnt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(3)
            self.first = nn.Parameter(torch.zeros(1, 1, 16))
            self.gru = nn.GRU(3, 16, batch_first=True)
            self.head = nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden, _ = self.gru(self.norm(x), self.first.expand(1, len(x), 16).contiguous())
            return self.head(hidden[:, -1])

    return Program(
        Learnt(),
        lambda: {"x": torch.randn(8, 6, 3), "y": torch.randn(8, 2)},
        lambda model, batch: F.huber_loss(model(batch["x"]), batch["y"]),
    )
