"""The stub submission: the solution with every value multiplied by zero; shapes, dtypes and graphs stay as they are.

Checks that only look at shapes accept it, so a lab whose checks accept it is a violation.
"""

from __future__ import annotations

_MAKE_STUBS = """

def __make_stubs(namespace):
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

    def stub(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            return zero(function(*args, **kwargs))
        return wrapped

    for name, value in list(namespace.items()):
        if getattr(value, "__module__", None) != namespace.get("__name__") or name.startswith("_"):
            continue
        if inspect.isfunction(value):
            namespace[name] = stub(value)
        elif isinstance(value, type):
            for method, function in list(vars(value).items()):
                if inspect.isfunction(function) and (method == "__call__" or not method.startswith("_")):
                    setattr(value, method, stub(function))

__make_stubs(globals())
"""


def stub(source: str) -> str:
    """The source of a policy file that returns zeros of the same shapes wherever `source` returns values."""
    return source + _MAKE_STUBS
