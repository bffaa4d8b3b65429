"""CTC over made-up words; letters are numbered from 1 and the blank is 0.

fault blank_is_a: DK316
"""
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
ALPHABET = "abcd"
char_to_id = {c: i + 1 for i, c in enumerate(ALPHABET)}  #! blank_is_a: char_to_id = {c: i for i, c in enumerate(ALPHABET)}
BLANK = 0
NUM_CLASSES = len(ALPHABET) + 1
CODE = torch.randn(len(ALPHABET), 12)


def utterance():
    n = int(torch.randint(3, 6, (1,)))
    word = "".join(ALPHABET[i] for i in torch.randint(0, 4, (n,)).tolist())
    frames = []
    for c in word:
        frames += [CODE[ALPHABET.index(c)] + 0.3 * torch.randn(12)] * 3 + [0.3 * torch.randn(12)] * 2
    return torch.stack(frames), torch.tensor([char_to_id[c] for c in word])


def collate(rows):
    xs, ys = zip(*rows)
    return (pad_sequence(xs, batch_first=True), torch.tensor([len(x) for x in xs]),
            torch.cat(ys), torch.tensor([len(y) for y in ys]))


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 32, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(64, NUM_CLASSES)

    def forward(self, x):
        return self.fc(self.rnn(x)[0]).log_softmax(-1)


def greedy(lp):
    path = torch.unique_consecutive(lp.argmax(-1)).tolist()
    return [p for p in path if p != BLANK]


def train():
    train_set, test_set = [utterance() for _ in range(600)], [utterance() for _ in range(100)]
    loader = DataLoader(train_set, batch_size=20, shuffle=True, collate_fn=collate)
    model, ctc = Acoustic(), nn.CTCLoss(blank=BLANK, zero_infinity=True)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(6):
        model.train()
        for x, xl, y, yl in loader:
            loss = ctc(model(x).transpose(0, 1), y, xl, yl)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
        model.eval()
        with torch.no_grad():
            exact = sum(greedy(model(x[None])[0]) == y.tolist() for x, y in test_set)
        print(f"epoch {epoch} loss {loss.item():.3f} exact {exact}/100")


WATCH = ()
