"""The hollow submission: the solution, with every value multiplied by zero and every shape, dtype and graph as it was.

Checks that only look at shapes pass it, so a lab whose checks pass it is refused.
"""

from __future__ import annotations

_HOLLOWING = """

def __hollow_out(namespace):
    import dataclasses, functools, inspect, torch

    def zero(value):
        if isinstance(value, torch.Tensor):
            return value * 0 if value.is_floating_point() else torch.zeros_like(value)
        if isinstance(value, dict):
            return type(value)(**{k: zero(v) for k, v in value.items()}) if dataclasses.is_dataclass(value) else {
                k: zero(v) for k, v in value.items()
            }
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: zero(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
            return dataclasses.replace(value, **fields)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(zero, value))
        if type(value) in (list, tuple):
            return type(value)(map(zero, value))
        return value * 0 if type(value) is float else value

    def hollow(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            return zero(function(*args, **kwargs))
        return wrapped

    for name, value in list(namespace.items()):
        if getattr(value, "__module__", None) != namespace.get("__name__") or name.startswith("_"):
            continue
        if inspect.isfunction(value):
            namespace[name] = hollow(value)
        elif isinstance(value, type):
            for method, function in list(vars(value).items()):
                if inspect.isfunction(function) and (method == "__call__" or not method.startswith("_")):
                    setattr(value, method, hollow(function))

__hollow_out(globals())
"""


def hollow(source: str) -> str:
    """The source of a policy file that returns zeros of the right shapes wherever `source` returns values."""
    return source + _HOLLOWING
