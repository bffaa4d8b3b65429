"""Follows which axis each dimension of a tensor holds, from the operations that give a dimension a meaning.

A linear layer makes features in its last dimension, a convolution in dimension 1, a recurrent layer in the last. A
`view` that counts an axis to another place is reported when a layer reads that place as the features. An operation that
is not known here makes dimensions without a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.recorders.by_tensor import ByTensor
from debugkit.recorders.function_calls import FunctionObserver, property_read_by
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk324_view_for_permute import CountedAxes, CountedAxis
from debugkit.rules.dk324_view_for_permute.axes import (
    Dim,
    Dims,
    Layout,
    Move,
    fresh,
    only_axis,
    reshaped,
    resized,
    shape_of,
    size_of,
    unknown,
)
from debugkit.setup import TrainingSetup

_RESHAPES = frozenset(
    {"view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "ravel", "squeeze", "unsqueeze"}
)
_VIEWS = frozenset({"view", "reshape", "view_as", "reshape_as", "unflatten", "flatten"})
_SAME = frozenset(
    {"add", "sub", "mul", "div", "true_divide", "multiply", "divide", "subtract", "rsub", "pow", "where", "maximum"}
    | {
        "minimum",
        "clamp",
        "clip",
        "relu",
        "relu6",
        "gelu",
        "silu",
        "elu",
        "selu",
        "celu",
        "leaky_relu",
        "prelu",
        "mish",
    }
    | {"hardswish", "hardtanh", "hardsigmoid", "tanh", "sigmoid", "softplus", "logsigmoid", "softmax", "log_softmax"}
    | {"neg", "abs", "exp", "log", "log1p", "sqrt", "rsqrt", "square", "sin", "cos", "reciprocal", "normalize", "lerp"}
    | {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "bernoulli"}
    | {"contiguous", "clone", "detach", "to", "type", "type_as", "float", "half", "bfloat16", "double", "cpu", "cuda"}
    | {
        "masked_fill",
        "nan_to_num",
        "cumsum",
        "flip",
        "roll",
        "addcmul",
        "requires_grad",
        "iadd",
        "isub",
        "imul",
        "idiv",
    }
    | {"layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "local_response_norm", "radd", "rmul"}
)
_REDUCTIONS = frozenset(
    {
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "std",
        "var",
        "norm",
        "logsumexp",
        "median",
        "prod",
        "nanmean",
        "argmax",
    }
)
_POOLS = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "lp_pool", "interpolate", "upsample")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_PARTS = frozenset({"chunk", "split", "unsafe_chunk", "unsafe_split", "tensor_split", "split_with_sizes"})
_WEIGHT_VIEWS = frozenset(
    {"t", "transpose", "permute", "to", "view", "reshape", "squeeze", "unsqueeze", "type", "float"}
)
_MOST = 64
"""Findings are about lines: no program has more such lines."""
_MOST_MOVES = 4096
"""Of about one step: a loop may run the model often before it."""


class CountedAxesProbe(FunctionProbe[CountedAxes, "_Calls"]):
    """Reads shapes only."""

    watch_steps = 3
    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup, _Calls(setup))
        self._last = CountedAxes(())

    def end_step(self, _step: int, /) -> None:
        self._last = CountedAxes(tuple(self.calls.found.values()))
        self.calls.reset()

    def observed(self) -> CountedAxes:
        return self._last


class _Calls(FunctionObserver):
    """It refers to tensors weakly, so it keeps none alive."""

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup
        self._layouts = ByTensor[Layout]()
        """Also of the next batch, which a loop may read before the step ends."""
        self._lines: dict[int, tuple[Move, str, SourceLine | None]] = {}
        self.reset()

    def reset(self) -> None:
        self.found: dict[tuple[SourceLine | None, tuple[int, ...]], CountedAxis] = {}
        self._weights = ByTensor[str]()
        if len(self._lines) > _MOST_MOVES // 2:
            self._lines.clear()

    def name_of(self, func: Callable[..., Any]) -> str | None:
        read = property_read_by(func)
        name: str = getattr(func, "__name__", "") if read is None else read
        name = _NAMES.get(name, name)
        return None if _followed(name) is None else name

    def before(self, name: str, args: Sequence[Any], _kwargs: dict[str, Any], /) -> tuple[int, ...] | None:
        """The shape: `unsqueeze_` changes it."""
        if name not in _RESHAPES or not args or not isinstance(args[0], Tensor) or args[0].is_nested:
            return None
        return tuple(args[0].shape)

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, begun: Any, /) -> None:
        follow = _followed(name)
        if follow is None or not args or any(isinstance(one, Tensor) and one.is_nested for one in (*args, output)):
            return
        follow(self, name, args, kwargs, output, begun)

    # What is known of a tensor

    def layout(self, tensor: Tensor) -> Layout:
        """What its dimensions hold."""
        layout = self._layouts.get(tensor)
        if layout is None or shape_of(layout.dims) != tuple(tensor.shape):
            layout = self._layouts[tensor] = Layout(unknown(tensor.shape))
        return layout

    def keep(self, output: Any, layout: Layout) -> None:
        """Store what the result's dimensions hold, if it has these sizes."""
        if not isinstance(output, Tensor) or shape_of(layout.dims) != tuple(output.shape):
            return
        if layout.meant is not None and shape_of(layout.meant) != tuple(output.shape):
            layout = Layout(layout.dims)
        if any(dim for dim in layout.dims):
            self._layouts[output] = layout

    def weight_name(self, tensor: Any) -> str | None:
        """The module of a parameter, or of a view of one; None if the tensor is no weight."""
        if not isinstance(tensor, Tensor):
            return None
        path = self._setup.parameter_paths.get(id(tensor))
        if path is not None:
            return path.rpartition(".")[0]
        return "" if isinstance(tensor, nn.Parameter) else self._weights.get(tensor)

    # What a layer reads

    def read(self, tensor: Any, place: int, reader: str, *, by_weight: bool = True) -> None:
        """A layer takes this dimension as the features."""
        layout = self._layouts.get(tensor) if isinstance(tensor, Tensor) else None
        if layout is None or layout.meant is None or not -len(layout.meant) <= place < len(layout.meant):
            return
        first = only_axis(layout.meant[0])
        if first is not None and first.move is not None and first.move.kind == "batch" and by_weight:
            self._record(first.move, reader)
        axis = only_axis(layout.meant[place])
        if axis is None or axis.move is None or axis.move.kind == "batch":
            return
        if size_of(layout.meant[place]) == axis.size if by_weight else axis.move.kind == "feature":
            self._record(axis.move, reader)

    def _record(self, move: Move, reader: str) -> None:
        line = self._lines.get(id(move))
        if line is None or len(self.found) == _MOST:
            return
        _, operation, at = line
        key = at, move.after
        if key not in self.found:
            self.found[key] = CountedAxis(
                operation=operation,
                before=move.before,
                after=move.after,
                kind=move.kind or "feature",
                size=move.size,
                sources=move.sources,
                targets=move.targets,
                maker=move.maker,
                reader=reader,
                module=reader if reader in self._setup.module_paths.values() else None,
                instead=move.instead,
                at=at,
            )

    # Operations

    def _reshape(self, name: str, args: Any, kwargs: Any, output: Any, before: tuple[int, ...] | None) -> None:
        given = args[0]
        if not isinstance(output, Tensor) or not isinstance(given, Tensor) or before is None:
            return
        weight = self.weight_name(given)
        if weight is not None:
            self._weights[output] = weight
            return
        after = tuple(output.shape)
        if not output.numel() or before == after or isinstance(args[-1], torch.dtype):
            self._same(name, args, kwargs, output, before)
            return
        layout = self._layouts.get(given) if given is not output else None
        if layout is None or shape_of(layout.dims) != before:
            layout = Layout(unknown(before))
            if given is not output:
                self._layouts[given] = layout
        made = reshaped(layout, before, after)
        if made.meant is not None and len(self._lines) < _MOST_MOVES:
            axes = {id(part.axis): part.axis for dim in made.meant for part in dim}
            new = [axis.move for axis in axes.values() if axis.move is not None and id(axis.move) not in self._lines]
            at = user_line() if new else None
            for move in new:
                self._lines[id(move)] = move, name, at
        self.keep(output, made)

    def _permute(self, name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if not isinstance(given, Tensor) or not isinstance(output, Tensor):
            return
        weight = self.weight_name(given)
        if weight is not None:
            self._weights[output] = weight
            return
        order = _order(name, given.ndim, args[1:], kwargs)
        if order is not None and given is not output:
            self.keep(output, _mapped(self.layout(given), lambda dims: tuple(dims[place] for place in order)))

    def _same(self, name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if name == "batch_norm" or name == "group_norm" or name == "instance_norm":
            self.read(given, 1, name)
        elif name in ("layer_norm", "rms_norm") and len(_argument(args, kwargs, 1, "normalized_shape", ())) == 1:
            self.read(given, -1, name)
        if not isinstance(output, Tensor):
            return
        weight = self.weight_name(given)
        if weight is not None and name in _WEIGHT_VIEWS:
            self._weights[output] = weight
            return
        operands = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor) and one.ndim]
        known = [(one, self._layouts[one]) for one in operands if one in self._layouts]
        if not known or any(one is output for one in operands):
            return
        tensor, layout = known[0]
        shape = tuple(output.shape)
        self.keep(output, layout if len(known) == 1 and tuple(tensor.shape) == shape else _broadcast(known, shape))

    def _reduce(self, name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if not isinstance(given, Tensor) or given not in self._layouts:
            return
        position = 2 if name == "norm" else 1
        chosen = _argument(args, kwargs, position, "dim", None)
        result = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) else None
        if result is None or chosen is None or isinstance(chosen, Tensor | bool):
            return
        places = {place % given.ndim for place in (chosen if isinstance(chosen, tuple | list) else (chosen,))}
        kept = result.ndim == given.ndim

        def without(dims: Dims) -> Dims:
            return tuple(() if p in places else dim for p, dim in enumerate(dims) if kept or p not in places)

        self.keep(result, _mapped(self._layouts[given], without))

    def _linear(self, name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        given, weight = args[0], _argument(args, kwargs, 1, "weight", None)
        maker = self.weight_name(weight) or ""
        self.read(given, -1, maker or name)
        if isinstance(given, Tensor) and isinstance(output, Tensor) and output.ndim:
            dims = self.layout(given).dims[:-1]
            self.keep(output, Layout((*dims, fresh(output.shape[-1], "feature", maker or name))))

    def _convolution(self, name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        given, weight = args[0], _argument(args, kwargs, 1, "weight", None)
        if not isinstance(given, Tensor) or not isinstance(output, Tensor) or not isinstance(weight, Tensor):
            return
        if given.ndim != weight.ndim:
            return  # without a batch
        maker = self.weight_name(weight) or ""
        if _argument(args, kwargs, 7 if "transpose" in name else 6, "groups", 1) == 1:
            self.read(given, 1, maker or name)
        features = fresh(output.shape[1], "feature", maker or name)
        self.keep(output, Layout((self.layout(given).dims[0], features, *unknown(output.shape[2:]))))

    def _pool(self, _name: str, args: Any, _kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        result = output[0] if isinstance(output, tuple) else output
        if not isinstance(given, Tensor) or not isinstance(result, Tensor) or given not in self._layouts:
            return
        if result.ndim == given.ndim > 2:
            sizes = tuple(result.shape[2:])

            def pooled(dims: Dims) -> Dims:
                places = zip(dims[2:], sizes, strict=True)
                return (*dims[:2], *(resized(dim, size) for dim, size in places))

            self.keep(result, _mapped(self._layouts[given], pooled))

    def _embedding(self, name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        indices, weight = args[0], _argument(args, kwargs, 1, "weight", None)
        if isinstance(indices, Tensor) and isinstance(output, Tensor):
            maker = self.weight_name(weight) or name
            self.keep(output, Layout((*self.layout(indices).dims, fresh(output.shape[-1], "feature", maker))))

    def _recurrent(self, name: str, args: Any, _kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if not isinstance(given, Tensor) or given.ndim != 3 or not isinstance(output, tuple) or len(args) < 9:
            return  # packed sequences have two dimensions
        weights = args[2]
        maker = (self.weight_name(weights[0]) if weights else "") or name
        self.read(given, -1, maker)
        dims = self.layout(given).dims
        at = 0 if args[8] else 1
        axis = only_axis(dims[at])
        batch = dims[at]
        if axis is None or axis.size != size_of(batch):
            batch = fresh(given.shape[at], "batch", maker)
        elif not axis.kind:
            axis.kind, axis.maker = "batch", maker
        time = dims[1 - at]
        sides = (batch, time) if at == 0 else (time, batch)
        self.keep(output[0], Layout((*sides, fresh(output[0].shape[-1], "feature", maker))))
        for state in output[1:]:
            if isinstance(state, Tensor) and state.ndim == 3:
                self.keep(state, Layout((fresh(state.shape[0]), batch, fresh(state.shape[2], "feature", maker))))

    def _attention(self, name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        if name == "scaled_dot_product_attention":
            given = [_argument(args, kwargs, place, key, None) for place, key in enumerate(("query", "key", "value"))]
            if not all(isinstance(one, Tensor) for one in given):
                return
            for one in given:
                self.read(one, -1, name, by_weight=False)
            query, _, value = given
            dims = self.layout(value if value.ndim == query.ndim else query).dims
            self.keep(output, Layout((*dims[:-2], self.layout(query).dims[-2], self.layout(value).dims[-1])))
            return
        weight = _argument(args, kwargs, 11, "out_proj_weight", None)
        maker = (self.weight_name(weight) or "").removesuffix(".out_proj") or name
        for one in args[:3]:
            self.read(one, -1, maker)
        made = output[0] if isinstance(output, tuple) else None
        if isinstance(args[0], Tensor) and isinstance(made, Tensor):
            self.keep(made, Layout((*self.layout(args[0]).dims[:-1], fresh(made.shape[-1], "feature", maker))))

    def _matmul(self, name: str, args: Any, _kwargs: Any, output: Any, _: Any) -> None:
        if name == "rmatmul":
            args = args[::-1]
        if name in ("baddbmm", "addmm"):
            args = args[1:]
        if len(args) < 2 or not all(isinstance(one, Tensor) and one.ndim >= 2 for one in args[:2]):
            return
        first, second = args[:2]
        weight = self.weight_name(second)
        if self.weight_name(first) is not None or not isinstance(output, Tensor):
            return
        self.read(first, -1, weight or name, by_weight=weight is not None)
        if weight is None:
            self.read(second, -2, name, by_weight=False)
        one, other = self.layout(first).dims, self.layout(second).dims
        last = fresh(output.shape[-1], "feature", weight or name) if weight is not None else other[-1]
        ahead = other if len(other) >= len(one) else one  # the heads of the values, not those of the weights
        batch = ahead[: output.ndim - 2]
        self.keep(output, Layout((*batch, one[-2], last)))

    def _cdist(self, name: str, args: Any, _kwargs: Any, _output: Any, _: Any) -> None:
        if len(args) > 1 and (weight := self.weight_name(args[1])) is not None:
            self.read(args[0], -1, weight or name)

    def _loss(self, name: str, args: Any, _kwargs: Any, _output: Any, _: Any) -> None:
        if isinstance(args[0], Tensor) and args[0].ndim > 1:
            self.read(args[0], 1, name)

    def _einsum(self, _name: str, args: Any, _kwargs: Any, output: Any, _: Any) -> None:
        operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
        if not isinstance(args[0], str) or "." in args[0] or "->" not in args[0] or not isinstance(output, Tensor):
            return
        terms, result = args[0].replace(" ", "").split("->")
        held: dict[str, Dim] = {}
        pairs = sorted(zip(terms.split(","), operands, strict=False), key=lambda pair: result[-1:] not in pair[0])
        for letters, operand in pairs:  # the one that gives the features first
            if not isinstance(operand, Tensor) or len(letters) != operand.ndim:
                return
            weight = self.weight_name(operand)
            dims = unknown(operand.shape) if weight is not None else self.layout(operand).dims
            for letter, dim in zip(letters, dims, strict=True):
                held.setdefault(letter, dim)
        if set(result) <= set(held):
            self.keep(output, Layout(tuple(held[letter] for letter in result)))

    def _item(self, _name: str, args: Any, _kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if not isinstance(given, Tensor) or given not in self._layouts or not isinstance(output, Tensor):
            return
        chosen = args[1] if isinstance(args[1], tuple) else (args[1],)
        if any(not (isinstance(one, slice) or one is None or one is Ellipsis or type(one) is int) for one in chosen):
            return
        self.keep(output, _mapped(self._layouts[given], lambda dims: _indexed(dims, chosen, tuple(output.shape))))

    def _part(self, _name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if not isinstance(given, Tensor) or given not in self._layouts or not isinstance(output, tuple | list):
            return
        place = _argument(args, kwargs, 2, "dim", 0) % given.ndim
        layout = self._layouts[given]
        for part in output:
            size = part.shape[place]
            meant = None if layout.meant is None else _cut(layout.meant, place, size)
            self.keep(part, Layout(_cut(layout.dims, place, size), meant))

    def _unbind(self, _name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if not isinstance(given, Tensor) or given not in self._layouts:
            return
        place = _argument(args, kwargs, 1, "dim", 0) % given.ndim
        for part in output if isinstance(output, tuple | list) else (output,):
            self.keep(part, _mapped(self._layouts[given], lambda dims: (*dims[:place], *dims[place + 1 :])))

    def _cat(self, _name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        known = [one for one in args[0] if isinstance(one, Tensor) and one in self._layouts]
        if not known or not isinstance(output, Tensor) or any(one.ndim != output.ndim for one in known):
            return
        place = _argument(args, kwargs, 1, "dim", kwargs.get("axis", 0)) % output.ndim
        self.keep(output, _mapped(self._layouts[known[0]], lambda dims: _cut(dims, place, output.shape[place])))

    def _stack(self, _name: str, args: Any, kwargs: Any, output: Any, _: Any) -> None:
        known = [one for one in args[0] if isinstance(one, Tensor) and one in self._layouts]
        if not known or not isinstance(output, Tensor):
            return
        place = _argument(args, kwargs, 1, "dim", 0) % output.ndim
        new = fresh(output.shape[place])
        self.keep(output, _mapped(self._layouts[known[0]], lambda dims: (*dims[:place], new, *dims[place:])))

    def _pad(self, _name: str, args: Any, _kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if isinstance(given, Tensor) and given in self._layouts and isinstance(output, Tensor):
            sizes = tuple(output.shape)

            def padded(dims: Dims) -> Dims:
                return tuple(
                    dim if size_of(dim) == size else fresh(size) for dim, size in zip(dims, sizes, strict=True)
                )

            self.keep(output, _mapped(self._layouts[given], padded))

    def _expand(self, _name: str, args: Any, _kwargs: Any, output: Any, _: Any) -> None:
        given = args[0]
        if isinstance(given, Tensor) and given in self._layouts and isinstance(output, Tensor):
            self.keep(output, _broadcast([(given, self._layouts[given])], tuple(output.shape)))


_Follow = Callable[[_Calls, str, Any, Any, Any, tuple[int, ...] | None], None]
_NAMES = {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "sub",
    "__rsub__": "sub",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__truediv__": "div",
    "__rtruediv__": "div",
    "__pow__": "pow",
    "__neg__": "neg",
    "__matmul__": "matmul",
    "__rmatmul__": "rmatmul",
    "__iadd__": "add",
    "__imul__": "mul",
    "concat": "cat",
    "concatenate": "cat",
    "swapdims": "swapaxes",
    "moveaxis": "movedim",
}
_BY_NAME: dict[str, _Follow] = {
    **dict.fromkeys(_SAME, _Calls._same),
    **dict.fromkeys(_RESHAPES, _Calls._reshape),
    **dict.fromkeys(("permute", "transpose", "swapaxes", "movedim", "t", "T", "mT", "adjoint"), _Calls._permute),
    **dict.fromkeys(_REDUCTIONS, _Calls._reduce),
    **dict.fromkeys((f"conv{n}d" for n in (1, 2, 3)), _Calls._convolution),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), _Calls._convolution),
    **dict.fromkeys(_RECURRENT, _Calls._recurrent),
    **dict.fromkeys(("scaled_dot_product_attention", "multi_head_attention_forward"), _Calls._attention),
    **dict.fromkeys(("matmul", "bmm", "rmatmul", "baddbmm", "mm", "addmm"), _Calls._matmul),
    **dict.fromkeys(_PARTS, _Calls._part),
    **dict.fromkeys(("unbind", "select"), _Calls._unbind),
    **dict.fromkeys(("expand", "expand_as", "repeat", "broadcast_to"), _Calls._expand),
    **dict.fromkeys((f"{pool}{n}d" for pool in _POOLS[:5] for n in (1, 2, 3)), _Calls._pool),
    **dict.fromkeys(_POOLS[5:], _Calls._pool),
    "linear": _Calls._linear,
    "embedding": _Calls._embedding,
    "cdist": _Calls._cdist,
    "cross_entropy": _Calls._loss,
    "nll_loss": _Calls._loss,
    "einsum": _Calls._einsum,
    "__getitem__": _Calls._item,
    "cat": _Calls._cat,
    "stack": _Calls._stack,
    "pad": _Calls._pad,
}


def _followed(name: str) -> _Follow | None:
    return _BY_NAME.get(name) or _BY_NAME.get(name.rstrip("_"))


def _mapped(layout: Layout, change: Callable[[Dims], Dims]) -> Layout:
    return Layout(change(layout.dims), None if layout.meant is None else change(layout.meant))


def _argument(args: Any, kwargs: Any, place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _order(name: str, ndim: int, args: Any, kwargs: Any) -> list[int] | None:
    """The dimension of the input in each dimension of the result."""
    order = list(range(ndim))
    if name == "permute":
        given = kwargs.get("dims", args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args)
        return [place % ndim for place in given]
    if name in ("t", "T", "mT", "adjoint"):
        if ndim < 2 or (name == "T" and ndim > 2):
            return order[::-1] if name == "T" else None
        order[-2], order[-1] = order[-1], order[-2]
        return order
    if name == "movedim":
        source, goal = _argument(args, kwargs, 0, "source", None), _argument(args, kwargs, 1, "destination", None)
        sources = [place % ndim for place in (source if isinstance(source, tuple | list) else (source,))]
        goals = [place % ndim for place in (goal if isinstance(goal, tuple | list) else (goal,))]
        left = iter(place for place in order if place not in sources)
        put = dict(zip(goals, sources, strict=True))
        return [put[place] if place in put else next(left) for place in order]
    keys = ("dim0", "dim1") if name == "transpose" else ("axis0", "axis1")
    pair = [_argument(args, kwargs, place, key, None) for place, key in enumerate(keys)]
    if not all(type(place) is int for place in pair):
        return None
    one, other = pair[0] % ndim, pair[1] % ndim
    order[one], order[other] = order[other], order[one]
    return order


def _broadcast(known: Sequence[tuple[Tensor, Layout]], shape: tuple[int, ...]) -> Layout:
    """What the result of an elementwise operation holds: a meaning that one operand has is the result's."""
    dims: list[Dim] = []
    for back, size in enumerate(reversed(shape), 1):
        fitting = [layout.dims[-back] for _, layout in known if len(layout.dims) >= back]
        fitting = [dim for dim in fitting if size_of(dim) == size]
        named = [dim for dim in fitting if any(part.axis.kind for part in dim)]
        dims.append((named or fitting or [fresh(size)])[0])
    meant = [layout.meant for _, layout in known if layout.meant is not None and shape_of(layout.meant) == shape]
    return Layout(tuple(reversed(dims)), meant[0] if meant else None)


def _cut(dims: Dims, place: int, size: int) -> Dims:
    return (*dims[:place], resized(dims[place], size), *dims[place + 1 :])


def _indexed(dims: Dims, chosen: Sequence[Any], shape: tuple[int, ...]) -> Dims:
    """The dimensions after integers, slices, None and one ellipsis."""
    used = sum(one is not None and one is not Ellipsis for one in chosen)
    left, made = list(dims), list[Dim]()

    def take(dim: Dim) -> None:
        size = shape[len(made)] if len(made) < len(shape) else 0
        made.append(dim if size_of(dim) == size else resized(dim, size))

    for one in chosen:
        if one is None:
            made.append(())
        elif one is Ellipsis:
            for _ in range(len(dims) - used):
                take(left.pop(0))
        elif type(one) is int:
            left.pop(0)
        else:
            take(left.pop(0))
    for dim in left:
        take(dim)
    return tuple(made)
