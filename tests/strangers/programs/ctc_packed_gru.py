"""CTC speech: variable lengths, packed bidirectional GRU, greedy decoding, ReduceLROnPlateau."""
import torch, torch.nn as nn
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader

torch.manual_seed(10)
N_SYM, N_MEL = 8, 16                      # symbol 0 is the blank
TEMPLATES = torch.randn(N_SYM, N_MEL)


class Utterances(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            L = int(torch.randint(3, 7, (1,), generator=g))
            y = torch.randint(1, N_SYM, (L,), generator=g)
            frames = []
            for s in y:
                d = int(torch.randint(2, 5, (1,), generator=g))
                frames += [TEMPLATES[s].expand(d, -1), torch.zeros(1, N_MEL)]
            x = torch.cat(frames)
            self.items.append((x + .2 * torch.randn(x.shape, generator=g), y))

    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]


def collate(batch):
    batch = sorted(batch, key=lambda b: -len(b[0]))
    xs, ys = zip(*batch)
    return {"feats": pad_sequence(xs, batch_first=True), "feat_lens": torch.tensor([len(x) for x in xs]),
            "targets": torch.cat(ys), "target_lens": torch.tensor([len(y) for y in ys])}


class Acoustic(nn.Module):
    def __init__(self, h=40):
        super().__init__()
        self.norm = nn.LayerNorm(N_MEL)
        self.rnn = nn.GRU(N_MEL, h, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * h, N_SYM)

    def forward(self, feats, lens):
        p = pack_padded_sequence(self.norm(feats), lens, batch_first=True)
        y, _ = self.rnn(p)
        y, _ = pad_packed_sequence(y, batch_first=True)
        return self.fc(y).log_softmax(-1)


def greedy(lp, lens):
    out = []
    for row, n in zip(lp.argmax(-1), lens):
        r = torch.unique_consecutive(row[:n])
        out.append(r[r != 0].tolist())
    return out


def train():
    train = DataLoader(Utterances(400, 1), 20, shuffle=True, collate_fn=collate)
    dev = DataLoader(Utterances(60, 2), 20, collate_fn=collate)
    net, ctc = Acoustic(), nn.CTCLoss(blank=0, zero_infinity=True)
    opt = torch.optim.Adam(net.parameters(), lr=8e-3)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=.5, patience=0)
    for epoch in range(6):
        net.train()
        s = 0.
        for b in train:
            opt.zero_grad()
            lp = net(b["feats"], b["feat_lens"])
            loss = ctc(lp.transpose(0, 1), b["targets"], b["feat_lens"], b["target_lens"])
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.)
            opt.step()
            s += loss.item()
        net.eval()
        v = ok = 0
        with torch.inference_mode():
            for b in dev:
                lp = net(b["feats"], b["feat_lens"])
                v += ctc(lp.transpose(0, 1), b["targets"], b["feat_lens"], b["target_lens"]).item()
                ok += sum(h == r.tolist() for h, r in zip(greedy(lp, b["feat_lens"]), b["targets"].split(b["target_lens"].tolist())))
        sched.step(v / len(dev))
        print(f"{epoch} train {s / len(train):.3f} dev {v / len(dev):.3f} exact {ok}/60")


WATCH = ()
