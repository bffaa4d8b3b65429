"""Passes over training batches that are meant, and validations that use their own."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

DATA = TensorDataset(torch.randn(24, 3), torch.randn(24, 2))
TRAIN = DataLoader(DATA, batch_size=4, shuffle=True)
HELD_OUT = DataLoader(TensorDataset(torch.randn(12, 3), torch.randn(12, 2)), batch_size=4)
NOT_SEEN = "No validation was seen that reads batches of a second torch DataLoader."


def _program(loop, **expect):
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop, "expect": expect}


def _step(model, optimizer, state, action):
    optimizer.zero_grad()
    F.mse_loss(model(state), action).backward()
    optimizer.step()


def _epoch(model, optimizer, loader=TRAIN):
    model.train()
    for state, action in loader:
        _step(model, optimizer, state, action)
    return state, action


@torch.no_grad()
def _validate(model, loader=HELD_OUT):
    model.eval()
    return sum(F.mse_loss(model(state), action).item() for state, action in loader)


def validation_batches():
    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer)
            _validate(model)

    return _program(loop)


def one_batch_to_overfit():
    """The training reads one batch, and the validation loop looks at the same one."""
    state, action = next(iter(TRAIN))

    def loop(model, optimizer):
        for _ in range(3):
            for _ in range(4):
                _step(model, optimizer, state, action)
            with torch.no_grad():
                for _ in HELD_OUT:
                    model(state)

    return _program(loop)


def loaders_of_the_same_batch():
    one = Subset(DATA, range(4))

    def loop(model, optimizer):
        for _ in range(4):
            _epoch(model, optimizer, DataLoader(one, batch_size=4))
            _validate(model, DataLoader(one, batch_size=4))
            _validate(model, DataLoader(one, batch_size=4))

    return _program(loop)


def metric_of_the_training_batch_in_each_step():
    def loop(model, optimizer):
        for state, action in TRAIN:
            _step(model, optimizer, state, action)
            with torch.no_grad():
                F.l1_loss(model(state), action)

    return _program(loop, not_examined=NOT_SEEN)


def monte_carlo_dropout_on_the_last_batch():
    """Eight passes over the last batch, then the validation."""

    def loop(model, optimizer):
        for _ in range(3):
            state, _action = _epoch(model, optimizer)
            with torch.no_grad():
                torch.stack([model(state) for _ in range(8)]).std(0)
            _validate(model)

    return _program(loop)


def uncertainty_after_data_that_another_program_uses():
    """Several passes over the last training batch, after a loader was read for its statistics."""

    def loop(model, optimizer):
        for _ in range(3):
            state, _action = _epoch(model, optimizer)
            torch.cat([held_state for held_state, _ in HELD_OUT]).mean(0)
            with torch.no_grad():
                torch.stack([model(state) for _ in range(8)]).std(0)

    return _program(loop)


def average_that_is_validated():
    """The average of the weights gets the validation batches, and the student is compared on its own last batch."""
    program = _program(None)
    average = copy.deepcopy(program["model"]).requires_grad_(False).eval()

    def loop(model, optimizer):
        for _ in range(3):
            state, _action = _epoch(model, optimizer)
            with torch.no_grad():
                for held_state, held_action in HELD_OUT:
                    F.mse_loss(average(held_state), held_action)
                    F.mse_loss(model(state), average(state))

    return {**program, "loop": loop}


class _Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.head = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, state):
        return self.head(self.tower(state).tanh())

    @torch.no_grad()
    def act(self, state):
        return self.head(self.tower(state).tanh())


def validation_through_another_method():
    """The method calls the parts; the last training batch is drawn beside each validation batch."""
    model = _Policy()

    def loop(model, optimizer):
        for _ in range(3):
            state, _action = _epoch(model, optimizer)
            for held_state, held_action in HELD_OUT:
                F.mse_loss(model.act(held_state), held_action)
                with torch.no_grad():
                    model(state)

    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop}


def neighbours_among_training_batches():
    """Each validation batch is compared with a batch of the training loader; the model gets both."""

    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer)
            model.eval()
            with torch.no_grad():
                for held_state, _ in HELD_OUT:
                    support, _ = next(iter(TRAIN))
                    torch.cdist(model(support), model(held_state))

    return _program(loop)


def part_of_the_training_data_validated():
    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer)
            _validate(model, DataLoader(Subset(DATA, range(12)), batch_size=4))

    return _program(loop)


def loss_on_the_training_data_after_each_epoch():
    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer)
            _validate(model, TRAIN)
            _validate(model)

    return _program(loop)


def whole_graph_in_each_pass():
    """The network gets the same inputs always; the loaders give the nodes whose loss counts."""
    state, action = torch.randn(24, 3), torch.randn(24, 2)

    def loop(model, optimizer):
        for _ in range(3):
            for nodes in DataLoader(range(12), batch_size=4, shuffle=True):
                optimizer.zero_grad()
                F.mse_loss(model(state)[nodes], action[nodes]).backward()
                optimizer.step()
            with torch.no_grad():
                for nodes in DataLoader(range(12, 24), batch_size=4):
                    F.mse_loss(model(state)[nodes], action[nodes])

    return _program(loop)


def training_in_eval_mode():
    """Frozen statistics: the model stays in eval mode, and every pass records a graph."""

    def loop(model, optimizer):
        model.eval()
        for _ in range(3):
            for (state, action), (_weak, _) in zip(TRAIN, HELD_OUT, strict=False):
                _step(model, optimizer, state, action)
                _step(model, optimizer, state, action)

    return _program(loop, not_examined=NOT_SEEN)


def tasks_validated_under_vmap():
    """Meta-learning: the model is called with the weights of each task inside `torch.func.vmap`."""

    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer)
            model.eval()
            with torch.no_grad():
                for states, _ in HELD_OUT:
                    weights = {name: value.expand(4, *value.shape) for name, value in model.named_parameters()}
                    torch.func.vmap(lambda w, x: torch.func.functional_call(model, w, (x,)))(weights, states)

    return _program(loop, not_examined=NOT_SEEN)


def _second_loader_is_needed(loop):
    return _program(loop, not_examined="No validation was seen that reads batches of a second torch DataLoader")


def accuracy_of_the_last_training_rows():
    x, y = torch.randn(40, 3), torch.randn(40, 2)

    def loop(model, optimizer):
        for _ in range(3):
            model.train()
            for rows in torch.randperm(32).split(8):
                _step(model, optimizer, x[rows], y[rows])
            model.eval()
            with torch.no_grad():
                F.mse_loss(model(x[rows]), y[rows])

    return _second_loader_is_needed(loop)


def rows_held_out():
    x, y = torch.randn(40, 3), torch.randn(40, 2)

    def loop(model, optimizer):
        test = torch.arange(32, 40)
        for _ in range(3):
            model.train()
            for rows in torch.randperm(32).split(8):
                _step(model, optimizer, x[rows], y[rows])
            model.eval()
            with torch.no_grad():
                F.mse_loss(model(x[test]), y[test])

    return _second_loader_is_needed(loop)


def one_batch_to_overfit_and_to_test():
    x_test, y_test = torch.randn(8, 3), torch.randn(8, 2)

    def loop(model, optimizer):
        for _ in range(4):
            model.train()
            _step(model, optimizer, x_test, y_test)
            model.eval()
            with torch.no_grad():
                model(x_test)

    return _second_loader_is_needed(loop)


def training_data_read_again_for_a_training_metric():
    train_eval_loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer)
            _validate(model, train_eval_loader)

    return _program(loop)


def training_data_read_again_beside_a_validation():
    eval_loader = DataLoader(DATA, batch_size=4)

    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer)
            _validate(model, eval_loader)
            _validate(model)

    return _program(loop)


def data_set_of_one_batch_that_is_also_validated():
    data = Subset(DATA, range(4))
    train, val_loader = DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=2)

    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer, train)
            _validate(model, val_loader)

    return _program(loop)


def parts_of_a_random_split():
    train, valid = torch.utils.data.random_split(DATA, [12, 12])

    def loop(model, optimizer):
        for _ in range(3):
            _epoch(model, optimizer, DataLoader(train, batch_size=4, shuffle=True))
            _validate(model, DataLoader(valid, batch_size=4))

    return _program(loop)
