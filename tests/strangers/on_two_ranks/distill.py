"""Knowledge distillation: a DDP student learns from an undistributed frozen teacher that each rank first trains
identically; validation runs through the wrapper under no_grad on all ranks, with predictions all_gathered.

fault kl_elementwise_mean: none
    The KL term uses reduction="mean", averaging over classes as well, so it is ten times too small.
fault teacher_train_mode: DK506
    The teacher is left in train mode while it produces targets, so its dropout makes them noisy.
fault student_stays_eval: DK505 at ".eval()"
    Validation puts the student into eval mode and nothing sets it back.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

K, FEATS, TEMP, ALPHA = 10, 24, 3.0, 0.7


def dataset(n, seed):
    task = torch.Generator().manual_seed(77)
    proto = torch.randn(K, 2, FEATS, generator=task)  # two modes per class
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, K, (n,), generator=g)
    m = torch.randint(0, 2, (n,), generator=g)
    return TensorDataset(proto[y, m] + 1.1 * torch.randn(n, FEATS, generator=g), y)


def make_net(width, p):
    return nn.Sequential(nn.Linear(FEATS, width), nn.ReLU(), nn.Dropout(p),
                         nn.Linear(width, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, K))


def pretrain_teacher(train_set):
    """Every rank runs the same seeded training, so all hold the same teacher."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        teacher = make_net(128, 0.3)
        opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
        xs, ys = train_set.tensors
        for _ in range(80):
            idx = torch.randint(0, len(xs), (128,))
            opt.zero_grad()
            F.cross_entropy(teacher(xs[idx]), ys[idx]).backward()
            opt.step()
    teacher.requires_grad_(False)
    teacher.eval()  #! teacher_train_mode: teacher.train()
    return teacher


def distill_loss(s_logits, t_logits, y):
    kd = F.kl_div(F.log_softmax(s_logits / TEMP, 1), F.softmax(t_logits / TEMP, 1), reduction="batchmean")  #! kl_elementwise_mean: kd = F.kl_div(F.log_softmax(s_logits / TEMP, 1), F.softmax(t_logits / TEMP, 1), reduction="mean")
    return ALPHA * TEMP ** 2 * kd + (1 - ALPHA) * F.cross_entropy(s_logits, y)


def gather_cat(t):
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t)
    return torch.cat(parts)


@torch.no_grad()
def validate(student, loader):
    student.eval()
    preds, labels = [], []
    for x, y in loader:
        preds.append(student(x).argmax(1))
        labels.append(y)
    # the validation set divides evenly, so all ranks hold equally many rows
    preds, labels = gather_cat(torch.cat(preds)), gather_cat(torch.cat(labels))
    return (preds == labels).float().mean().item()


def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(20)
    train_set, val_set = dataset(1280, 0), dataset(400, 1)
    teacher = pretrain_teacher(train_set)
    student = DistributedDataParallel(make_net(40, 0.1))
    sampler = DistributedSampler(train_set, shuffle=True, seed=20)
    train_loader = DataLoader(train_set, batch_size=32, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=100, sampler=DistributedSampler(val_set, shuffle=False))
    opt = torch.optim.AdamW(student.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.8)

    with torch.no_grad():
        t_acc = (teacher(val_set.tensors[0]).argmax(1) == val_set.tensors[1]).float().mean().item()
    if rank == 0:
        print(f"teacher acc {t_acc:.3f}", flush=True)

    torch.manual_seed(20 + rank)  # dropout stream
    for epoch in range(6):
        sampler.set_epoch(epoch)
        student.train()  #! student_stays_eval: pass
        tot = torch.zeros(2)
        for x, y in train_loader:
            with torch.no_grad():
                t_logits = teacher(x)
            loss = distill_loss(student(x), t_logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += torch.tensor([loss.item(), 1.0])
        sched.step()
        acc = validate(student, val_loader)
        dist.all_reduce(tot)
        if rank == 0:
            print(f"epoch {epoch} loss {(tot[0] / tot[1]).item():.4f} val acc {acc:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
