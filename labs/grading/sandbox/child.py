"""The child: loads the learner's files beside the original probe.py, and answers requests until its stream ends.

The learner's code shares this interpreter and may change anything in it, so the grader trusts nothing here. The grader
chooses the inputs, never sends an expected value, and treats any malformed reply as the submission's failure.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import torch

from labs.grading.sandbox import frames, sockets, values
from labs.grading.sandbox.cold_child import environment
from labs.grading.sandbox.limits import LOST_PIPES, Limits, apply_to_this_process
from labs.grading.sandbox.supervisor import ChildSetup

REQUEST_BYTES = 1024 * 1024 * 1024


def run(setup: ChildSetup) -> NoReturn:
    """Serve requests; never returns."""
    limits = Limits(**setup.job["limits"])
    requests, replies = _private(setup.requests), _private(setup.replies)
    _settle(setup.folder / "home")
    child = _Child(setup.folder / "submission", Path(setup.job["probe"]), setup.job["shown_as"])
    child.load_probe()
    apply_to_this_process(limits, own_task_count=setup.namespaced)
    if not setup.namespaced:
        sockets.allow_loopback_only()
    try:
        while (received := frames.receive(requests, REQUEST_BYTES)) is not None:
            frames.send(replies, child.answer(*received))
    except OSError:
        os._exit(LOST_PIPES)
    os._exit(0)


def _private(descriptor: int) -> int:
    """The same pipe under a random number that programs do not normally use, closed on exec."""
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64 + random.SystemRandom().randrange(400))
    os.close(descriptor)
    return moved


def _settle(home: Path) -> None:
    """Its own home, working and temporary folder; one thread; always the same environment."""
    os.chdir(home)
    own = environment() | {"HOME": str(home), "TMPDIR": str(home)}
    os.environ.clear()
    os.environ.update(own)
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)


class _Child:
    """The loaded submission, and the operations that the grader may request."""

    def __init__(self, folder: Path, probe_path: Path, shown_as: dict[str, str]) -> None:
        self._folder = folder
        self._probe_path = probe_path
        self._shown_as = shown_as
        self._learner = SimpleNamespace()
        self._probe: ModuleType | None = None
        self._operations: dict[str, Callable[..., Any]] = {
            "ready": self._ready,
            "load": self._load,
            "call": self._call,
            "observe": self._observe,
            "diagnose": self._diagnose,
            "symptom": self._symptom,
        }

    def load_probe(self) -> None:
        """Import the original probe.py, before the learner's code can change what it imports."""
        if self._probe_path.exists():
            self._probe = _import_file("probe", self._probe_path)

    def answer(self, header: dict[str, Any], payload: bytes) -> bytes:
        """One reply frame: the value, or what was raised. The nonce names the request."""
        nonce = header["nonce"]
        try:
            seed_everything(header["seed"])
            arguments, keywords = _with_gradients(values.decode(header["arguments"], payload))
            value = self._operations[header["operation"]](header["name"], *arguments, **keywords)
            tree, tensors = values.encode(value)
        except BaseException as error:
            return frames.pack({"nonce": nonce, "raised": self._describe(error)})
        finally:
            _flush()
        return frames.pack({"nonce": nonce, "value": tree}, tensors)

    def _ready(self, _name: str) -> None:
        """The reply itself says that the imports are done."""

    def _load(self, _name: str) -> None:
        sys.path.insert(0, str(self._folder))  # the learner's files may import each other
        for file, shown in self._shown_as.items():
            path = self._folder / file
            loaded = _import_text(path.stem, path, shown) if path.suffix == ".py" else path
            setattr(self._learner, path.stem, loaded)

    def _call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        target: Any = self._learner
        modules = [Path(file).stem for file in self._shown_as]
        path = name.split(".")
        for part in path if path[0] in modules and len(path) > 1 else [modules[0], *path]:
            target = getattr(target, part)
        return target(*arguments, **keywords)

    def _observe(self, name: str, **keywords: Any) -> Any:
        return getattr(self._probe, name)(self._learner, **keywords)

    def _diagnose(self, _name: str) -> Any:
        from labs.grading.sandbox import diagnosis

        report = diagnosis.diagnose(getattr(self._probe, "subject")(self._learner))  # noqa: B009 (a module's contract)
        for finding in report["findings"]:  # Python files are compiled under their own names; a configuration is not
            location = finding["location"]
            path = Path(location.get("file") or "")
            if path.is_relative_to(self._folder):
                location["file"] = self._shown_as.get(path.relative_to(self._folder).as_posix(), location["file"])
        return report

    def _symptom(self, _name: str) -> None:
        try:
            getattr(self._probe, "symptom")(self._learner)  # noqa: B009
        except BaseException as error:
            _print_traceback(error)
            raise

    def _describe(self, error: BaseException) -> dict[str, Any]:
        try:
            text = str(error)
        except BaseException:
            text = "(an exception that cannot be printed)"
        own = [
            {
                "file": Path(frame.filename).name,
                "line": frame.lineno or 0,
                "function": frame.name,
                "code": frame.line or "",
            }
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename in self._shown_as.values()
        ]
        clean = text[:4000].encode("utf-8", "replace").decode()
        return {"type": type(error).__name__[:200], "text": clean, "trace": own[-20:]}


def _with_gradients(value: Any) -> Any:
    """Give tensors back the requires_grad they had at the grader."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad_(values.facts(value).requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(_with_gradients(item) for item in value)
    if isinstance(value, dict):
        return {key: _with_gradients(item) for key, item in value.items()}
    return value


def seed_everything(seed: int) -> None:
    """Seed every generator before each request, so that no request depends on an earlier one."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def _import_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} cannot be imported: is it a Python file?")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_text(name: str, path: Path, shown: str) -> ModuleType:
    """Import a learner's file under the name that its tracebacks should show."""
    source = path.read_text(encoding="utf-8")
    linecache.cache[shown] = (len(source), None, source.splitlines(keepends=True), shown)
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(source, shown, "exec", dont_inherit=True), module.__dict__)
    return module


def _print_traceback(error: BaseException) -> None:
    """Print the traceback without the frames of the sandbox."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # a stream the submission replaced or closed
            continue
