"""VQ-BeT: (1) a residual VQ auto-encoder over action chunks, (2) a small GPT which predicts the codes and a continuous offset.

fault no_straight_through: DK105|DK107
fault vq_not_frozen: none
fault code_roll: none
fault double_softmax: DK308
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
DEVICE = "cpu"
CHUNK, ADIM, ODIM, WINDOW = 5, 2, 4, 6
N_CODES, LATENT, D = 12, 16, 64

# ---------------------------------------------------------------- data: a kitchen-like play set with 4 modes of motion


def play_data(n_traj, T=40, seed=0):
    g = torch.Generator().manual_seed(seed)
    obs, act = [], []
    for _ in range(n_traj):
        mode = torch.randint(0, 4, (1,), generator=g).item()
        pos, phase = torch.rand(2, generator=g) * 2 - 1, torch.rand(1, generator=g) * 6.28
        goal = torch.tensor([[1.0, 1], [-1, 1], [-1, -1], [1, -1]])[mode]
        for t in range(T):
            wiggle = torch.cat([torch.sin(0.5 * t + phase), torch.cos(0.5 * t + phase)])
            a = 0.2 * (goal - pos) + 0.15 * wiggle * (1 if mode % 2 else -1)
            obs.append(torch.cat([pos, goal + 0.05 * torch.randn(2, generator=g)]))
            act.append(a)
            pos = pos + a
    return torch.stack(obs).view(n_traj, T, ODIM), torch.stack(act).view(n_traj, T, ADIM)


def windows(obs, act):
    """obs windows (N, WINDOW, ODIM) and for each step of the window its future chunk (N, WINDOW, CHUNK*ADIM)."""
    T = obs.shape[1]
    chunks = act.unfold(1, CHUNK, 1).permute(0, 1, 3, 2).reshape(len(act), T - CHUNK + 1, CHUNK * ADIM)
    o, c = [], []
    for s in range(0, T - CHUNK + 1 - WINDOW, 3):
        o.append(obs[:, s:s + WINDOW])
        c.append(chunks[:, s:s + WINDOW])
    return torch.cat(o), torch.cat(c)


# ---------------------------------------------------------------- stage 1


class ResidualVQ(nn.Module):
    def __init__(self, n_layers=2, beta=0.25):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(CHUNK * ADIM, 64), nn.GELU(), nn.Linear(64, LATENT), nn.Tanh())
        self.dec = nn.Sequential(nn.Linear(LATENT, 64), nn.GELU(), nn.Linear(64, CHUNK * ADIM))
        self.books = nn.ParameterList(nn.Parameter(torch.randn(N_CODES, LATENT) * 0.3 / (i + 1)) for i in range(n_layers))
        self.beta = beta

    @torch.no_grad()
    def init_from(self, chunk):
        """Codebooks start at the latents (and residuals) of random training chunks."""
        residual = self.enc(chunk)
        for book in self.books:
            book.copy_(residual[torch.randperm(len(residual))[:N_CODES]])
            residual = residual - book[torch.cdist(residual, book).argmin(-1)]

    def quantise(self, z):
        residual, total, codes = z, torch.zeros_like(z), []
        for book in self.books:
            idx = torch.cdist(residual.detach(), book.detach()).argmin(-1)
            q = book[idx]
            total = total + q
            residual = residual - q.detach()
            codes.append(idx)
        return total, torch.stack(codes, -1)

    def lookup(self, codes):
        return sum(book[codes[..., i]] for i, book in enumerate(self.books))

    def forward(self, chunk):
        z = self.enc(chunk)
        zq, codes = self.quantise(z)
        vq_loss = F.mse_loss(zq, z.detach()) + self.beta * F.mse_loss(z, zq.detach())
        st = z + (zq - z).detach()  #! no_straight_through: st = zq
        return F.l1_loss(self.dec(st), chunk) + vq_loss, codes


# ---------------------------------------------------------------- stage 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D), nn.Dropout(0.1))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, 4, D // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.ln2(x))


class BeT(nn.Module):
    def __init__(self, vq):
        super().__init__()
        self.inp, self.pos = nn.Linear(ODIM, D), nn.Parameter(torch.zeros(1, WINDOW, D))
        self.blocks, self.ln = nn.Sequential(Block(), Block()), nn.LayerNorm(D)
        self.code_head = nn.Linear(D, 2 * N_CODES)
        self.offset_head = nn.Sequential(nn.Linear(D + LATENT, 64), nn.GELU(), nn.Linear(64, CHUNK * ADIM))
        self.vq = vq

    def forward(self, obs):
        h = self.ln(self.blocks(self.inp(obs) + self.pos))
        return h, self.code_head(h).unflatten(-1, (2, N_CODES))

    def decode(self, h, codes):
        zq = self.vq.lookup(codes)
        return self.vq.dec(zq) + self.offset_head(torch.cat([h, zq], -1))

    def loss(self, obs, chunk):
        codes = self.vq(chunk)[1].detach()  #! code_roll: codes = self.vq(chunk)[1].detach().roll(1, 0)
        h, logits = self(obs)
        logits = logits.flatten(0, 2)  #! double_softmax: logits = logits.flatten(0, 2).softmax(-1)
        ce = F.cross_entropy(logits, codes.flatten())
        return ce + 5.0 * F.l1_loss(self.decode(h, codes), chunk), ce


def batches(n, size, epochs):
    for _ in range(epochs):
        yield from torch.randperm(n)[: n // size * size].view(-1, size)


def train():
    o_tr, a_tr = play_data(60, seed=0)
    o_va, a_va = play_data(12, seed=1)
    o_mu, o_sd, a_mu, a_sd = o_tr.mean((0, 1)), o_tr.std((0, 1)), a_tr.mean((0, 1)), a_tr.std((0, 1))
    obs, chunk = windows((o_tr - o_mu) / o_sd, (a_tr - a_mu) / a_sd)
    v_obs, v_chunk = windows((o_va - o_mu) / o_sd, (a_va - a_mu) / a_sd)

    vq = ResidualVQ().to(DEVICE)
    vq.init_from(chunk[:200].flatten(0, 1))
    opt = torch.optim.Adam(vq.parameters(), lr=3e-3)
    for i, idx in enumerate(batches(len(obs), 64, 8)):
        loss, codes = vq(chunk[idx].flatten(0, 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 20 == 0:
            print(f"vq {i:3d} loss {loss.item():.3f} codes in use {codes.unique().numel()}")

    vq.requires_grad_(False)  #! vq_not_frozen: pass
    model = BeT(vq)
    decay = [p for n, p in model.named_parameters() if not n.startswith("vq.") and p.dim() == 2]  #! vq_not_frozen: decay = [p for n, p in model.named_parameters() if p.dim() == 2]
    plain = [p for n, p in model.named_parameters() if not n.startswith("vq.") and p.dim() != 2]  #! vq_not_frozen: plain = [p for n, p in model.named_parameters() if p.dim() != 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}], lr=2e-3)
    for i, idx in enumerate(batches(len(obs), 64, 10)):
        model.train()
        loss, ce = model.loss(obs[idx], chunk[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(decay + plain, 1.0)
        opt.step()
        if i % 25 == 0 or i == len(obs) // 64 * 10 - 1:
            model.eval()
            with torch.no_grad():
                h, logits = model(v_obs)
                err = F.l1_loss(model.decode(h, logits.argmax(-1)), v_chunk)
            print(f"bet {i:3d} loss {loss.item():.3f} ce {ce.item():.3f} val l1 {err.item():.3f}")


WATCH = ()
