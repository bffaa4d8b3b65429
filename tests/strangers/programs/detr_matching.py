"""DETR-like: learned queries, Hungarian matching (exhaustive over 3 objects), no-object class, auxiliary losses per decoder layer."""
import itertools, torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(6)
NQ, NC = 5, 3


def scene(_=None):
    n = int(torch.randint(1, 4, ()))
    img, boxes, labels = .05 * torch.randn(3, 24, 24), [], []
    for _ in range(n):
        c = int(torch.randint(0, NC, ()))
        w, h = torch.randint(5, 10, (2,)).tolist()
        x, y = int(torch.randint(0, 24 - w, ())), int(torch.randint(0, 24 - h, ()))
        img[:, y:y + h, x:x + w] = 0.
        img[c, y:y + h, x:x + w] = 1.
        boxes.append([(x + w / 2) / 24, (y + h / 2) / 24, w / 24, h / 24]); labels.append(c)
    return img, {"boxes": torch.tensor(boxes), "labels": torch.tensor(labels)}


def collate(samples):
    imgs, targets = zip(*samples)
    return torch.stack(imgs), list(targets)


class MLP(nn.Module):
    def __init__(self, i, h, o, n):
        super().__init__()
        d = [i] + [h] * (n - 1) + [o]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(d, d[1:]))
    def forward(self, x):
        for i, l in enumerate(self.layers):
            x = F.relu(l(x)) if i < len(self.layers) - 1 else l(x)
        return x


class DETR(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, d, 4, 2, 1), nn.ReLU())
        self.row, self.col = nn.Parameter(torch.rand(6, d // 2)), nn.Parameter(torch.rand(6, d // 2))
        self.encoder = nn.TransformerEncoderLayer(d, 4, 96, dropout=0., batch_first=True)
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(d, 4, 96, dropout=0., batch_first=True) for _ in range(2))
        self.query_embed = nn.Embedding(NQ, d)
        self.class_embed, self.bbox_embed = nn.Linear(d, NC + 1), MLP(d, d, 4, 3)
    def forward(self, x):
        f = self.backbone(x).flatten(2).transpose(1, 2)
        pos = torch.cat([self.col[None].expand(6, -1, -1), self.row[:, None].expand(-1, 6, -1)], -1).flatten(0, 1)
        mem = self.encoder(f + pos)
        q, outs = self.query_embed.weight.unsqueeze(0).repeat(len(x), 1, 1), []
        for l in self.decoder:
            q = l(q, mem)
            outs.append({"pred_logits": self.class_embed(q), "pred_boxes": self.bbox_embed(q).sigmoid()})
        return {**outs[-1], "aux_outputs": outs[:-1]}


def giou(a, b):
    ax0, ay0, ax1, ay1 = (a[..., :2] - a[..., 2:] / 2).split(1, -1) + (a[..., :2] + a[..., 2:] / 2).split(1, -1)
    bx0, by0, bx1, by1 = (b[..., :2] - b[..., 2:] / 2).split(1, -1) + (b[..., :2] + b[..., 2:] / 2).split(1, -1)
    inter = (torch.min(ax1, bx1) - torch.max(ax0, bx0)).clamp(min=0) * (torch.min(ay1, by1) - torch.max(ay0, by0)).clamp(min=0)
    union = a[..., 2:3] * a[..., 3:] + b[..., 2:3] * b[..., 3:] - inter
    hull = (torch.max(ax1, bx1) - torch.min(ax0, bx0)) * (torch.max(ay1, by1) - torch.min(ay0, by0))
    return (inter / union - (hull - union) / hull).squeeze(-1)


class SetCriterion(nn.Module):
    def __init__(self, eos=.2):
        super().__init__()
        w = torch.ones(NC + 1); w[-1] = eos
        self.register_buffer("empty_weight", w)
    @torch.no_grad()
    def match(self, o, targets):
        res = []
        for lg, bx, t in zip(o["pred_logits"], o["pred_boxes"], targets):
            cost = -lg.softmax(-1)[:, t["labels"]] + 5 * torch.cdist(bx, t["boxes"], p=1) - 2 * giou(bx[:, None], t["boxes"][None])
            n = len(t["labels"])
            res.append(torch.tensor(min(itertools.permutations(range(NQ), n), key=lambda p: sum(cost[i, j].item() for j, i in enumerate(p)))))
        return res
    def single(self, o, targets):
        idx = self.match(o, targets)
        bi = torch.cat([torch.full_like(s, i) for i, s in enumerate(idx)]); si = torch.cat(idx)
        tc = torch.full(o["pred_logits"].shape[:2], NC)
        tc[bi, si] = torch.cat([t["labels"] for t in targets])
        tb, pb = torch.cat([t["boxes"] for t in targets]), o["pred_boxes"][bi, si]
        return {"ce": F.cross_entropy(o["pred_logits"].transpose(1, 2), tc, self.empty_weight), "l1": F.l1_loss(pb, tb, reduction="sum") / len(tb), "giou": (1 - giou(pb, tb)).mean()}
    def forward(self, o, targets):
        return [self.single(x, targets) for x in [o, *o["aux_outputs"]]]


def train():
    model, criterion, wd = DETR(), SetCriterion(), {"ce": 1., "l1": 5., "giou": 2.}
    groups = [{"params": [p for n, p in model.named_parameters() if "backbone" not in n]},
              {"params": [p for n, p in model.named_parameters() if "backbone" in n], "lr": 1e-3}]
    opt = torch.optim.AdamW(groups, lr=1e-3, weight_decay=1e-4)
    data = [scene() for _ in range(320)]
    loader = torch.utils.data.DataLoader(data, 16, shuffle=True, collate_fn=collate)
    for epoch in range(4):
        model.train(); criterion.train()
        stats = torch.zeros(3)
        for samples, targets in loader:
            ds = criterion(model(samples), targets)
            loss = sum(d[k] * w for d in ds for k, w in wd.items())
            opt.zero_grad(); loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), .5)
            opt.step()
            stats += torch.stack([ds[0][k].detach() for k in wd]) / len(loader)
        print(epoch, "ce l1 giou", stats.tolist())


WATCH = ()
