"""PhD research code: a stateful GRU forecaster over one long sensor record, trained with truncated BPTT on parallel streams.

fault stream_reshape: DK324
fault best_by_reference: DK513
fault target_same_step: DK404
fault plateau_max: DK503
"""
import copy
import logging
import math

import torch
import torch.nn as nn

# experiment constants (see table 2 of the draft)
SEED = 1234
T_TOTAL, N_STREAMS, CHUNK = 9000, 16, 25
TRAIN_FRAC, VAL_FRAC = 0.7, 0.15
HIDDEN, LR, EPOCHS, CLIP, PATIENCE = 32, 4e-3, 8, 1.0, 4

log = logging.getLogger(__name__)


def simulate_record(T, gen):
    """Two coupled slow-fast oscillators with phase noise; the second channel lags the first."""
    w = 2 * math.pi / torch.tensor([37.0, 11.0])
    phase = torch.cumsum(w + 0.03 * torch.randn(T, 2, generator=gen), 0)
    slow, fast = torch.sin(phase[:, 0]), torch.sin(phase[:, 1])
    a = 20 + 6 * slow + 2 * fast * (1 + slow)
    b = -3 + 1.5 * torch.roll(slow, 5) * fast
    x = torch.stack([a, b], 1)[5:]  # the first samples of the rolled channel come from the future
    return x + 0.1 * torch.randn(x.shape, generator=gen)


def to_streams(x, n):
    """(T, C) -> (n, T // n, C): row i is the i-th contiguous stretch of the record."""
    L = x.shape[0] // n
    x = x[: n * L]
    return x.reshape(n, L, -1)  #! stream_reshape: return x.reshape(L, n, -1).transpose(0, 1)


def chunks(streams, size):
    """Input/target pairs for one-step-ahead prediction, in order of time."""
    L = streams.shape[1]
    for s in range(0, L - 1, size):
        e = min(s + size, L - 1)
        yield streams[:, s:e], streams[:, s + 1:e + 1]  #! target_same_step: yield streams[:, s:e], streams[:, s:e]


class StatefulGRU(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.gru = nn.GRU(n_in, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, n_in)
        for name, p in self.gru.named_parameters():
            if name.startswith("weight_hh"):
                for gate in p.data.chunk(3):
                    nn.init.orthogonal_(gate)

    def forward(self, x, h=None):
        z, h = self.gru(x, h)
        return x + self.readout(z), h


def run_epoch(net, streams, opt=None):
    net.train(opt is not None)
    h, tot, cnt = None, 0.0, 0
    with torch.set_grad_enabled(opt is not None):
        for x, y in chunks(streams, CHUNK):
            pred, h = net(x, h)
            loss = nn.functional.smooth_l1_loss(pred, y)
            if opt is not None:
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), CLIP)
                opt.step()
            h = h.detach()
            tot += loss.item() * x.shape[1]
            cnt += x.shape[1]
    return tot / cnt


def train():
    torch.manual_seed(SEED)
    gen = torch.Generator().manual_seed(SEED)
    x = simulate_record(T_TOTAL, gen)
    i, j = int(TRAIN_FRAC * len(x)), int((TRAIN_FRAC + VAL_FRAC) * len(x))
    mu, sd = x[:i].mean(0), x[:i].std(0)
    x = (x - mu) / sd
    tr, va, te = to_streams(x[:i], N_STREAMS), to_streams(x[i:j], 4), to_streams(x[j:], 4)

    net = StatefulGRU(x.shape[1], HIDDEN)
    opt = torch.optim.Adam(net.parameters(), lr=LR)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="min", factor=0.5, patience=1)  #! plateau_max: plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max", factor=0.5, patience=1)

    first = run_epoch(net, va)
    best, best_state, bad = float("inf"), None, 0
    for epoch in range(EPOCHS):
        l_tr, l_va = run_epoch(net, tr, opt), run_epoch(net, va)
        plateau.step(l_va)
        log.info("epoch %d train %.4f val %.4f", epoch, l_tr, l_va)
        if l_va < best - 1e-5:
            best, bad = l_va, 0
            best_state = copy.deepcopy(net.state_dict())  #! best_by_reference: best_state = net.state_dict()
        else:
            bad += 1
            if bad >= PATIENCE:
                break
        print(f"epoch {epoch}: train {l_tr:.4f} val {l_va:.4f} lr {opt.param_groups[0]['lr']:.1e}")
    net.load_state_dict(best_state)
    print(f"val loss {first:.4f} (untrained) -> {best:.4f}; test {run_epoch(net, te):.4f}")


WATCH = ()
