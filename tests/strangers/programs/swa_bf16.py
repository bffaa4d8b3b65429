"""ResNet-like net under autocast(bfloat16), OneCycleLR per batch, then SWA with update_bn; AverageMeter logging."""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(9)


class AverageMeter:
    def __init__(self, name): self.name = name; self.reset()
    def reset(self): self.sum = self.count = self.val = 0
    def update(self, val, n=1): self.val = val; self.sum += val * n; self.count += n
    @property
    def avg(self): return self.sum / max(1, self.count)
    def __str__(self): return f"{self.name} {self.val:.3f} ({self.avg:.3f})"


class Basic(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        nn.init.zeros_(self.bn2.weight)                   # zero-init residual
        self.short = nn.Sequential() if stride == 1 and i == o else nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        out = torch.relu_(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.short(x)
        return torch.relu_(out)


def resnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), Basic(8, 8, 1), Basic(8, 16, 2), Basic(16, 16, 1),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(.1), nn.Linear(64, 5))


@torch.no_grad()
def accuracy(output, target, topk=(1, 2)):
    pred = output.topk(max(topk), 1).indices.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    return [correct[:k].reshape(-1).float().sum().mul_(100. / len(target)).item() for k in topk]


def evaluate(m, loader):
    m.eval()
    top = AverageMeter("acc")
    with torch.inference_mode():
        for x, y in loader:
            top.update(accuracy(m(x), y)[0], len(y))
    return top.avg


def train():
    proto = torch.nn.functional.interpolate(torch.randn(5, 3, 3, 3), size=12, mode="bilinear")
    y = torch.randint(0, 5, (640,))
    x = proto[y] + .8 * torch.randn(640, 3, 12, 12)
    train, val = DataLoader(TensorDataset(x[:512], y[:512]), 32, shuffle=True), DataLoader(TensorDataset(x[512:], y[512:]), 64)
    model = resnet()
    swa = AveragedModel(model)
    decay, no_decay = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.SGD([{"params": decay, "weight_decay": 5e-4}, {"params": no_decay, "weight_decay": 0}], lr=.02, momentum=.9, nesterov=True)
    one = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=.1, epochs=3, steps_per_epoch=len(train))
    swa_sched = None
    crit = nn.CrossEntropyLoss()
    for epoch in range(5):
        model.train()
        losses, top1, top2 = AverageMeter("loss"), AverageMeter("acc@1"), AverageMeter("acc@2")
        if epoch == 3:
            swa_sched = SWALR(opt, swa_lr=.02, anneal_epochs=1)
        for xb, yb in train:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(xb)
                loss = crit(out, yb)
            a1, a2 = accuracy(out, yb)
            losses.update(loss.item(), len(yb)); top1.update(a1, len(yb)); top2.update(a2, len(yb))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if epoch < 3:
                one.step()
        if epoch >= 3:
            swa.update_parameters(model)
            swa_sched.step()
        print(epoch, losses, top1, top2, "val", evaluate(model, val))
    update_bn(train, swa)
    print("swa val", evaluate(swa, val))


WATCH = ()
