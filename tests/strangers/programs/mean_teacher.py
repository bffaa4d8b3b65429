"""Semi-supervised learning with an averaged teacher outside of the model; its weight in the loss is ramped up from 0.

"""
import copy
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(4)
student = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
step_no = 0
X = torch.randn(256, 6)
Y = X[:, :3].argmax(1)

def ramp(step, length=50):
    return min(1.0, step / length)

def loss_fn(model, batch):
    x, y, u = batch
    class_loss = F.cross_entropy(model(x), y)
    with torch.no_grad():
        target = teacher(u + 0.1 * torch.randn_like(u)).softmax(1)
    consistency = F.mse_loss(model(u).softmax(1), target)
    return class_loss + ramp(step_no) * consistency

def train():
    global step_no
    for _ in range(50):
        i = torch.randint(0, 256, (16,)); j = torch.randint(0, 256, (32,))
        loss = loss_fn(student, (X[i], Y[i], X[j]))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        step_no += 1
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), student.parameters()):
                t.lerp_(s, 0.01)

CHECK = lambda: dict(model=student, batch=(X[:16], Y[:16], X[100:132]), loss_fn=loss_fn, optimizer=optimizer)
WATCH = (student, optimizer)
