"""PointNet with T-Net, Conv1d 1x1, max pooling, orthogonality regulariser, nll on log_softmax; manual in-place augmentation in the loader; SGD with warm restarts."""
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(17)


class Clouds(Dataset):
    def __init__(self, n, npts=48, augment=True):
        self.y = torch.randint(0, 4, (n,)); self.n, self.augment = npts, augment
        u = torch.randn(n, npts, 3)
        sphere = F.normalize(u, dim=-1)
        cube = u / u.abs().amax(-1, keepdim=True)
        disk = sphere.clone(); disk[..., 2] *= .05
        stick = u * torch.tensor([.1, .1, 1.])
        self.x = torch.stack([sphere, cube, disk, stick])[self.y, torch.arange(n)]
    def __len__(self): return len(self.y)
    def __getitem__(self, i):
        p = self.x[i].clone()
        if self.augment:
            a = torch.rand(()) * 6.2832
            c, s = a.cos(), a.sin()
            p[:, :2] = p[:, :2] @ torch.stack([torch.stack([c, -s]), torch.stack([s, c])])
            p.add_(.02 * torch.randn_like(p)).mul_(.8 + .4 * torch.rand(()))
            p = p[torch.randperm(self.n)]
        return {"points": p, "label": self.y[i]}


class TNet(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.conv = nn.Sequential(nn.Conv1d(k, 24, 1), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 48, 1), nn.BatchNorm1d(48), nn.ReLU())
        self.fc = nn.Sequential(nn.Linear(48, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, k * k))
        nn.init.zeros_(self.fc[-1].weight); self.fc[-1].bias.data.copy_(torch.eye(k).flatten())

    def forward(self, x):
        return self.fc(self.conv(x).max(2)[0]).view(-1, self.k, self.k)


class PointNetCls(nn.Module):
    def __init__(self, k=4):
        super().__init__()
        self.stn, self.fstn = TNet(3), TNet(24)
        self.conv1, self.conv2 = nn.Conv1d(3, 24, 1), nn.Conv1d(24, 64, 1)
        self.bn1, self.bn2 = nn.BatchNorm1d(24), nn.BatchNorm1d(64)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(.2), nn.Linear(32, k))

    def forward(self, pts):
        x = pts.transpose(2, 1)
        trans = self.stn(x)
        x = F.relu(self.bn1(self.conv1(torch.bmm(trans, x))))
        feat = self.fstn(x)
        x = self.bn2(self.conv2(torch.bmm(feat, x)))
        x = torch.max(x, 2, keepdim=True)[0].view(-1, 64)
        return F.log_softmax(self.head(x), dim=1), feat


def regulariser(t):
    return torch.mean(torch.norm(t @ t.transpose(2, 1) - torch.eye(t.size(1)), dim=(1, 2)))


def train():
    train, test = DataLoader(Clouds(512), 32, shuffle=True, drop_last=True), DataLoader(Clouds(128, augment=False), 64)
    net = PointNetCls()
    opt = torch.optim.SGD(net.parameters(), lr=.03, momentum=.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=2)
    for epoch in range(4):
        tot = 0.
        for i, data in enumerate(train):
            net.train()
            pred, feat = net(data["points"])
            loss = F.nll_loss(pred, data["label"]) + .001 * regulariser(feat)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step(epoch + i / len(train))
            tot += loss.item() / len(train)
            if i % 8 == 0:                       # check on one test batch now and then, as in fxia22/pointnet.pytorch
                b = next(iter(test))
                net = net.eval()
                with torch.no_grad():
                    acc = net(b["points"])[0].max(1)[1].eq(b["label"]).float().mean().item()
        print(f"epoch {epoch} loss {tot:.3f} test acc {acc:.3f}")


WATCH = ()
