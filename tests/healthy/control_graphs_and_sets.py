"""Agents, graphs, sets, equations and tasks: programs whose batch or whose step is not the usual one."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.func import functional_call
from torch.nn import functional as F

from healthy.program import STEPS, Program, program


def layer_init(layer: nn.Linear, std: float = 2**0.5, bias_const: float = 0.0) -> nn.Linear:
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, obs: int = 6, actions: int = 3) -> None:
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(obs, 32)), nn.Tanh(), layer_init(nn.Linear(32, 1), std=1.0))
        self.actor_mean = nn.Sequential(
            layer_init(nn.Linear(obs, 32)), nn.Tanh(), layer_init(nn.Linear(32, actions), std=0.01)
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, actions))

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        mean = self.actor_mean(x)
        probs = Normal(mean, torch.exp(self.actor_logstd.expand_as(mean)))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


@program
def proximal_policy_optimisation() -> Program:
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)

    def rollout() -> dict[str, Tensor]:
        obs = torch.randn(32, 6)
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(obs)
        advantages = torch.randn(32)
        return {
            "obs": obs,
            "actions": action,
            "logprobs": logprob,
            "advantages": advantages,
            "returns": advantages + value.view(-1),
            "values": value.view(-1),
        }

    def loss_fn(model: nn.Module, b: dict[str, Tensor]) -> Tensor:
        _, newlogprob, entropy, newvalue = model.get_action_and_value(b["obs"], b["actions"])
        ratio = (newlogprob - b["logprobs"]).exp()
        adv = (b["advantages"] - b["advantages"].mean()) / (b["advantages"].std() + 1e-8)
        pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
        newvalue = newvalue.view(-1)
        v_clipped = b["values"] + torch.clamp(newvalue - b["values"], -0.2, 0.2)
        v_loss = 0.5 * torch.max((newvalue - b["returns"]) ** 2, (v_clipped - b["returns"]) ** 2).mean()
        return pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss

    def train(self: Program) -> None:
        for _ in range(2):
            batch = self.draw()
            for _ in range(STEPS // 2):
                optimizer.zero_grad()
                self.loss(batch).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

    return Program(agent, rollout, loss_fn, optimizer, train)


@program
def q_network_that_a_global_copy_follows() -> Program:
    class DQN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    policy_net = DQN()
    target_net = copy.deepcopy(policy_net)
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-4, amsgrad=True)

    def draw() -> dict[str, Tensor]:
        return {
            "state": torch.randn(32, 4),
            "action": torch.randint(2, (32, 1)),
            "next_state": torch.randn(32, 4),
            "reward": torch.ones(32),
            "done": (torch.rand(32) < 0.1).float(),
        }

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        state_action_values = model(batch["state"]).gather(1, batch["action"])
        with torch.no_grad():
            next_state_values = target_net(batch["next_state"]).max(1).values * (1 - batch["done"])
        expected = next_state_values * 0.99 + batch["reward"]
        return nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))

    def train(self: Program) -> None:
        for _ in range(STEPS):
            loss = self.loss(self.draw())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
            optimizer.step()
            weights = target_net.state_dict()
            for key, value in policy_net.state_dict().items():
                weights[key] = value * 0.005 + weights[key] * 0.995
            target_net.load_state_dict(weights)

    return Program(policy_net, draw, loss_fn, optimizer, train)


@program
def policy_gradient_over_masked_actions() -> Program:
    """Forbidden actions get -inf before the categorical distribution is made."""
    net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 4))

    def draw() -> dict[str, Tensor]:
        allowed = torch.rand(24, 4) < 0.7
        allowed[:, 0] = True
        action = Categorical(probs=allowed.float() / allowed.sum(1, keepdim=True)).sample()
        return {"obs": torch.randn(24, 5), "allowed": allowed, "action": action, "ret": torch.randn(24)}

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["obs"]).masked_fill(~batch["allowed"], -torch.inf)
        return -(Categorical(logits=logits).log_prob(batch["action"]) * batch["ret"]).mean()

    return Program(net, draw, loss_fn)


class GCNLayer(nn.Module):
    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        loops = torch.arange(x.size(0), device=x.device)
        row, col = torch.cat([edge_index, torch.stack([loops, loops])], dim=1)
        deg = torch.zeros(x.size(0), device=x.device).scatter_add_(0, col, torch.ones_like(col, dtype=x.dtype))
        norm = deg.pow(-0.5)[row] * deg.pow(-0.5)[col]
        out = torch.zeros(x.size(0), self.bias.numel(), device=x.device, dtype=x.dtype)
        return out.index_add_(0, col, norm.unsqueeze(-1) * self.lin(x)[row]) + self.bias


@program
def graphs_joined_into_one_and_pooled_by_their_number() -> Program:
    class GCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2, self.lin = GCNLayer(7, 16), GCNLayer(16, 16), nn.Linear(16, 2)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
            x = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
            pooled = x.new_zeros(num_graphs, x.size(1)).index_add_(0, batch, x)
            counts = torch.bincount(batch, minlength=num_graphs).clamp(min=1).unsqueeze(1)
            return self.lin(F.dropout(pooled / counts, p=0.2, training=self.training))

    def draw() -> dict[str, object]:
        sizes = [5, 7, 4, 8]
        offsets = torch.tensor([0, *sizes[:-1]]).cumsum(0).tolist()
        edges = [torch.randint(size, (2, 2 * size)) + offset for size, offset in zip(sizes, offsets, strict=True)]
        return {
            "x": torch.randn(sum(sizes), 7),
            "edge_index": torch.cat(edges, dim=1),
            "batch": torch.arange(4).repeat_interleave(torch.tensor(sizes)),
            "y": torch.randint(2, (4,)),
        }

    def loss_fn(model: nn.Module, data: dict[str, Tensor]) -> Tensor:
        out = model(data["x"], data["edge_index"], data["batch"], len(data["y"]))
        return F.cross_entropy(out, data["y"])

    return Program(GCN(), draw, loss_fn)


class MAB(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attn, self.ln0, self.ln1 = (
            nn.MultiheadAttention(dim, 2, batch_first=True),
            nn.LayerNorm(dim),
            nn.LayerNorm(dim),
        )
        self.rff = nn.Sequential(nn.Linear(dim, dim), nn.ReLU())

    def forward(self, q: Tensor, k: Tensor, ignore: Tensor | None = None) -> Tensor:
        h = self.ln0(q + self.attn(q, k, k, key_padding_mask=ignore, need_weights=False)[0])
        return self.ln1(h + self.rff(h))


@program
def set_transformer_over_sets_of_several_sizes() -> Program:
    class SetTransformer(nn.Module):
        def __init__(self, dim: int = 16) -> None:
            super().__init__()
            self.proj = nn.Linear(3, dim)
            self.inducing = nn.Parameter(torch.empty(1, 4, dim))
            self.seed = nn.Parameter(torch.empty(1, 1, dim))
            nn.init.xavier_uniform_(self.inducing)
            nn.init.xavier_uniform_(self.seed)
            self.mab0, self.mab1, self.pma, self.out = MAB(dim), MAB(dim), MAB(dim), nn.Linear(dim, 1)

        def forward(self, points: Tensor, present: Tensor) -> Tensor:
            x = self.proj(points)
            h = self.mab0(self.inducing.repeat(x.size(0), 1, 1), x, ~present)
            x = self.mab1(x, h)
            return self.out(self.pma(self.seed.repeat(x.size(0), 1, 1), x, ~present)).squeeze(1).squeeze(1)

    def draw() -> dict[str, Tensor]:
        present = torch.arange(9)[None, :] < torch.tensor([9, 5, 7, 3, 8, 6])[:, None]
        points = torch.rand(6, 9, 3) * present.unsqueeze(-1)
        return {"points": points, "present": present, "max_value": points[..., 0].max(1).values}

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.l1_loss(model(batch["points"], batch["present"]), batch["max_value"])

    return Program(SetTransformer(), draw, loss_fn)


@program
def tasks_that_take_turns_with_their_own_heads() -> Program:
    """A batch belongs to one task, so the other heads are not called in its step."""

    class MultiTask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
            self.heads = nn.ModuleDict(
                {"depth": nn.Linear(32, 1), "normals": nn.Linear(32, 3), "seg": nn.Linear(32, 5)}
            )
            self.log_vars = nn.ParameterDict({task: nn.Parameter(torch.zeros(())) for task in self.heads})

        def forward(self, x: Tensor, task: str) -> Tensor:
            return self.heads[task](self.trunk(x))

    turn = {"next": 0}

    def draw() -> dict[str, object]:
        task = ("seg", "depth", "normals")[turn["next"] % 3]
        turn["next"] += 1
        y = {"seg": torch.randint(5, (12,)), "depth": torch.rand(12, 1), "normals": F.normalize(torch.randn(12, 3))}
        return {"task": task, "x": torch.randn(12, 8), "y": y[task]}

    def loss_fn(model: nn.Module, batch: dict[str, object]) -> Tensor:
        task, out = batch["task"], model(batch["x"], batch["task"])
        loss = (F.cross_entropy if task == "seg" else F.mse_loss)(out, batch["y"])  # type: ignore[operator]
        return torch.exp(-model.log_vars[task]) * loss + model.log_vars[task]

    return Program(MultiTask(), draw, loss_fn)


@program
def differential_equation_solved_by_a_network() -> Program:
    """The second derivative with respect to the input is part of the loss."""
    net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))

    def loss_fn(model: nn.Module, collocation: Tensor) -> Tensor:
        x = collocation.clone().requires_grad_(True)
        u = model(x)
        u_x = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
        boundary = model(torch.tensor([[0.0], [1.0]]))
        return (u_xx + torch.sin(torch.pi * x)).pow(2).mean() + 10 * boundary.pow(2).mean()

    return Program(net, lambda: torch.rand(32, 1), loss_fn)


@program
def meta_learning_through_an_inner_step() -> Program:
    net = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 1))

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        params, outer = dict(model.named_parameters()), torch.zeros(())
        for x_s, y_s, x_q, y_q in zip(*batch.values(), strict=True):
            inner = F.mse_loss(functional_call(model, params, (x_s,)), y_s)
            grads = torch.autograd.grad(inner, list(params.values()), create_graph=True)
            fast = {name: p - 0.01 * g for (name, p), g in zip(params.items(), grads, strict=True)}
            outer = outer + F.mse_loss(functional_call(model, fast, (x_q,)), y_q)
        return outer / len(batch["x_s"])

    def draw() -> dict[str, Tensor]:
        amplitude, x = torch.rand(4, 1, 1) * 5, torch.rand(4, 10, 1) * 10 - 5
        y = amplitude * torch.sin(x)
        return {"x_s": x[:, :5], "y_s": y[:, :5], "x_q": x[:, 5:], "y_q": y[:, 5:]}

    return Program(net, draw, loss_fn)
