"""pytorch/examples word_language_model: batchify, truncated BPTT, repackage_hidden, own SGD update without optimizer."""
import math, torch
import torch.nn as nn

torch.manual_seed(1111)
V = 40
trans = torch.softmax(torch.randn(V, V) * 2.5, -1)


def corpus(n):
    out = [0]
    for _ in range(n - 1):
        out.append(int(torch.multinomial(trans[out[-1]], 1)))
    return torch.tensor(out)


def batchify(data, bsz):
    nb = data.size(0) // bsz
    return data.narrow(0, 0, nb * bsz).view(bsz, -1).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=.2, tie_weights=True):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -.1, .1)
        nn.init.zeros_(self.decoder.bias)
        self.nhid, self.nlayers, self.ntoken = nhid, nlayers, ntoken

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        w = next(self.parameters())
        return w.new_zeros(self.nlayers, bsz, self.nhid), w.new_zeros(self.nlayers, bsz, self.nhid)


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def train():
    bptt = 20
    train_data, val_data = batchify(corpus(9000), 16), batchify(corpus(1500), 8)
    model = RNNModel("LSTM", V, 48, 48, 2)
    criterion = nn.NLLLoss()

    def get_batch(source, i):
        seq_len = min(bptt, len(source) - 1 - i)
        return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].view(-1)

    def evaluate(source):
        model.eval()
        total, hidden = 0., model.init_hidden(source.size(1))
        with torch.no_grad():
            for i in range(0, source.size(0) - 1, bptt):
                data, targets = get_batch(source, i)
                output, hidden = model(data, hidden)
                hidden = repackage_hidden(hidden)
                total += len(data) * criterion(output, targets).item()
        return total / (len(source) - 1)

    lr, best = 10., None
    for epoch in range(5):
        model.train()
        hidden = model.init_hidden(train_data.size(1))
        for batch, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
            data, targets = get_batch(train_data, i)
            model.zero_grad()
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), .25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
        v = evaluate(val_data)
        print(f"epoch {epoch} valid loss {v:.3f} ppl {math.exp(v):.2f} lr {lr}")
        if best is None or v < best:
            best = v
        else:
            lr /= 4.


WATCH = ()
