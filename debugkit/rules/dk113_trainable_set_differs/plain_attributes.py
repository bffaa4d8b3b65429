"""`module.requires_grad = False` sets a plain attribute, and `parameter.requires_grad_ = False` replaces the method.

Neither freezes anything. An attribute that a module's own class uses, or that a library has set, means something else.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from debugkit.finding import SourceLine
from debugkit.frames import is_own, is_users
from debugkit.interventions.program_lines import files_on_the_stack, names_of
from debugkit.module_paths import plain_path
from debugkit.rules.dk113_trainable_set_differs import PlainAttribute
from debugkit.setup import TrainingSetup

_SETTING, _METHOD = "requires_grad", "requires_grad_"
_OVER_MODULES = frozenset(("children", "modules", "named_children", "named_modules"))
_OVER_PARAMETERS = frozenset(("parameters", "named_parameters"))
_SET_BY_NAME = frozenset(("getattr", "hasattr", "setattr"))


@dataclass(frozen=True, eq=False)
class Assigned:
    """A flag that was assigned to a module or a parameter, and the parameters that it is about."""

    owner: nn.Module | nn.Parameter
    path: str
    name: str
    value: bool
    parameters: Mapping[str, nn.Parameter]

    @property
    def contradicts(self) -> bool:
        """Whether no parameter has the value: one that has it was set, and the others may have been set later."""
        return bool(self.parameters) and all(p.requires_grad != self.value for p in self.parameters.values())

    def held_by(self, optimizers: Iterable[Optimizer]) -> dict[str, nn.Parameter]:
        """Those of the parameters that an optimizer updates."""
        groups = (group for optimizer in optimizers for group in optimizer.param_groups)
        held = {id(parameter) for group in groups if group.get("lr", 1) != 0 for parameter in group["params"]}
        return {path: parameter for path, parameter in self.parameters.items() if id(parameter) in held}


def assigned(setup: TrainingSetup) -> list[Assigned]:
    """All flags in the model, outermost first, whatever they are."""
    found = []
    for module, path in setup.module_paths.items():
        for name in (_SETTING, _METHOD):
            value = vars(module).get(name)
            if isinstance(value, bool):
                found.append(Assigned(module, path, name, value, dict(_named_below(module, path, name))))
    for path, parameter in setup.model.named_parameters():
        value = vars(parameter).get(_METHOD)
        if isinstance(value, bool):
            found.append(Assigned(parameter, plain_path(path), _METHOD, value, {plain_path(path): parameter}))
    return found


def of_the_program(found: Iterable[Assigned], setup: TrainingSetup) -> list[Assigned]:
    """Those that the program has assigned to no purpose: no class and no line of it reads them."""
    return [one for one in found if not _has_a_purpose(one, setup)]


def described(
    found: Iterable[Assigned], trained: Callable[[Assigned], bool | None], setup: TrainingSetup
) -> tuple[PlainAttribute, ...]:
    """As plain data: those of one line together, and no module below one that has the same flag."""
    groups: dict[tuple[object, ...], list[Assigned]] = {}
    listed: set[str] = set()
    for one in found:
        if not one.parameters.keys() <= listed:
            listed |= one.parameters.keys()
            of_parameter = isinstance(one.owner, nn.Parameter)
            key = one.name, one.value, of_parameter, trained(one), _line(one, setup)
            groups.setdefault(key, []).append(one)
    return tuple(_described(key, members) for key, members in groups.items())


def _described(key: tuple[object, ...], members: list[Assigned]) -> PlainAttribute:
    name, value, of_parameter, trained, line = key
    parameters = {path: parameter for one in members for path, parameter in one.parameters.items()}
    return PlainAttribute(
        owners=tuple(one.path for one in members),
        of_parameter=bool(of_parameter),
        name=str(name),
        value=bool(value),
        parameters=tuple(parameters),
        numel=sum(parameter.numel() for parameter in parameters.values()),
        trained=None if trained is None else bool(trained),
        line=line if isinstance(line, SourceLine) else None,
    )


def _named_below(module: nn.Module, path: str, name: str) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of a module without those of a part that has a flag of its own."""
    for own, parameter in module.named_parameters(prefix=path, recurse=False):
        yield plain_path(own), parameter
    for part, child in module.named_children():
        if not isinstance(vars(child).get(name), bool):
            yield from _named_below(child, plain_path(f"{path}.{part}".lstrip(".")), name)


def _has_a_purpose(one: Assigned, setup: TrainingSetup) -> bool:
    if isinstance(one.owner, nn.Parameter):
        return False
    if hasattr(type(one.owner), _SETTING) or (one.name == _METHOD and type(one.owner).requires_grad_ is not _DEFINED):
        return True
    if one.name == _METHOD:
        return False
    if any(_mentions_its_own(cls) for cls in _classes(one.owner)):
        return True
    names = _names(one, setup)
    for file in _program_files(setup):
        uses = _uses(file)
        if uses.by_name or any(use.name == _SETTING and use.reads and use.is_of(names) for use in uses.found):
            return True
    return any(
        use.name == _SETTING and not use.reads and use.of in names
        for file in _library_files(setup)
        for use in _uses(file).found
    )


_DEFINED = nn.Module.requires_grad_


def _classes(module: nn.Module) -> list[type]:
    """The classes of a module that torch does not define."""
    return [cls for cls in type(module).__mro__ if cls.__module__.partition(".")[0] not in ("torch", "builtins")]


def _files_of(module: nn.Module) -> set[str]:
    return {file for cls in _classes(module) for file in _files_of_class(cls)}


def _files_of_class(cls: type) -> set[str]:
    codes = (getattr(inspect.unwrap(value), "__code__", None) for value in vars(cls).values() if callable(value))
    return {code.co_filename for code in codes if code is not None}


def _mentions_its_own(cls: type) -> bool:
    """Whether a method of the class uses the flag of its own instance, or sets attributes by their names."""
    return any(cls.__name__ in _uses(file).of_own_class for file in _files_of_class(cls))


def _names(one: Assigned, setup: TrainingSetup) -> set[str]:
    """The last parts of a module's paths, and the names of the program's variables for it."""
    paths = (path for path, module in setup.model.named_modules(remove_duplicate=False) if module is one.owner)
    return {path.rpartition(".")[2] for path in paths if path} | names_of(one.owner)


def _program_files(setup: TrainingSetup) -> set[str]:
    """The files of the model's classes and of the running code, and the imported files in and below their folders."""
    of_models = {file for module in setup.module_paths for file in _files_of(module)}
    known = {file for file in of_models | set(files_on_the_stack()) if is_own(file)}
    folders = {Path(file).parent for file in known}
    imported = [str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    return known | {file for file in imported if is_own(file) and not folders.isdisjoint(Path(file).parents)}


def _library_files(setup: TrainingSetup) -> set[str]:
    of_models = {file for module in setup.module_paths for file in _files_of(module)}
    return {file for file in of_models if is_users(file) and not is_own(file)}


def _line(one: Assigned, setup: TrainingSetup) -> SourceLine | None:
    """The only line that assigns the value to something with a name of the owner, or else to each owner in a loop."""
    of_parameter = isinstance(one.owner, nn.Parameter)
    names = set() if of_parameter else _names(one, setup)
    uses = [
        (SourceLine(file, use.line), use)
        for file in sorted(_program_files(setup))
        for use in _uses(file).found
        if use.name == one.name and use.value is one.value
    ]
    named = [line for line, use in uses if use.of in names and not use.over_modules]
    in_loops = [line for line, use in uses if (use.over_parameters if of_parameter else use.over_modules)]
    lines = named or in_loops
    return lines[0] if len(lines) == 1 else None


@dataclass(frozen=True)
class _Use:
    """`X.requires_grad`, read or assigned."""

    line: int
    name: str
    of: str
    """The last name of X."""
    over_modules: bool
    """X is the variable of a loop over modules."""
    over_parameters: bool
    reads: bool
    value: object

    def is_of(self, names: set[str]) -> bool:
        return self.over_modules or self.of in names


@dataclass(frozen=True)
class _Uses:
    found: tuple[_Use, ...] = ()
    by_name: bool = False
    """`getattr(module, "requires_grad")` or the like."""
    of_own_class: frozenset[str] = frozenset()
    """Classes that use `self.requires_grad`, have an argument of this name, or set attributes by their names."""


def _uses(file: str) -> _Uses:
    path = Path(file)
    return _uses_in(path, path.stat().st_mtime_ns) if path.is_file() else _Uses()


@functools.lru_cache(maxsize=256)
def _uses_in(path: Path, _changed: int) -> _Uses:
    try:
        text = path.read_text(encoding="utf-8")
        if _SETTING not in text and "setattr" not in text and "__dict__" not in text:
            return _Uses()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return _Uses()
    modules, parameters = _variables_over(tree, _OVER_MODULES), _variables_over(tree, _OVER_PARAMETERS)
    values = {
        id(target): node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in (_SETTING, _METHOD):
            of = str(getattr(node.value, "attr", None) or getattr(node.value, "id", ""))
            variable = of if isinstance(node.value, ast.Name) else ""
            found.append(
                _Use(
                    line=node.lineno,
                    name=node.attr,
                    of=of,
                    over_modules=variable in modules,
                    over_parameters=variable in parameters,
                    reads=isinstance(node.ctx, ast.Load),
                    value=values.get(id(node)),
                )
            )
    classes = frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and _uses_its_own_flag(node)
    )
    return _Uses(tuple(found), any(_names_it(node) for node in ast.walk(tree)), classes)


def _variables_over(tree: ast.AST, methods: frozenset[str]) -> set[str]:
    """The variables of loops over the results of these methods."""
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension))
    return {
        name.id
        for loop in loops
        if any(getattr(part, "attr", None) in methods for part in ast.walk(loop.iter))
        for name in ast.walk(loop.target)
        if isinstance(name, ast.Name)
    }


def _names_it(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", None) in _SET_BY_NAME
        and any(isinstance(argument, ast.Constant) and argument.value == _SETTING for argument in node.args)
    )


def _uses_its_own_flag(tree: ast.ClassDef) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == _SETTING and getattr(node.value, "id", None) == "self":
            return True
        if isinstance(node, ast.arg) and node.arg == _SETTING:
            return True
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("setattr", "vars"):
            return True
    return False
