"""Recurrent networks over tokens: a language model, and a classifier of packed sequences."""

from __future__ import annotations

import random

from injection.architectures import Part, kind
from injection.datasets import words_to_continue, words_with_a_class
from injection.kinds.language import CLASSIFY, SHIFTED


@kind
def lstm_language_model(chance: random.Random) -> Part:
    cell, width = chance.choice(("LSTM", "GRU")), chance.choice((24, 32))
    model = f"""
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, {width}, padding_idx=PAD)
        self.rnn = nn.{cell}({width}, {width}, num_layers={chance.choice((1, 2))}, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear({width}, VOCABULARY)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids)
        x, _ = self.rnn(x)
        x = self.dropout(x)
        return self.head(x)


def build_model():
    return Recurrent()
"""
    return Part(model, words_to_continue(chance), SHIFTED, "language model", rate=3e-3)


@kind
def gru_classifier(chance: random.Random) -> Part:
    model = f"""
class Reader(nn.Module):
    def __init__(self, width={chance.choice((16, 32))}):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.fc1 = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 3)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids)
        lengths = attention_mask.sum(dim=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.rnn(packed)
        x = torch.cat([last[0], last[1]], dim=1)
        x = torch.tanh(self.fc1(x))
        return self.head(x)


def build_model():
    return Reader()
"""
    return Part(model, words_with_a_class(chance), CLASSIFY, "classify text", rate=3e-3)
