"""Starts the child as a fresh interpreter. This is the reference path: it shares only files with the grader."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from labs.grading.sandbox.supervisor import ChildSetup

IMPORT_ROOT = Path(__file__).resolve().parents[3]
"""The folder that holds the `labs` package."""


def start(setup: ChildSetup) -> NoReturn:
    """Replace this process with a new Python that runs the child."""
    for descriptor in (setup.requests, setup.replies):
        os.set_inheritable(descriptor, True)
    arguments = {
        "requests": setup.requests,
        "replies": setup.replies,
        "folder": str(setup.folder),
        "job": {key: value for key, value in setup.job.items() if key != "files"},
        "namespaced": setup.namespaced,
    }
    os.execve(sys.executable, python_command("labs.grading.sandbox.cold_child", json.dumps(arguments)), environment())


def python_command(module: str, *arguments: str) -> list[str]:
    """The command for an interpreter that runs `main()` of one of our modules, without user site and current folder.

    Not `-I`, which ignores PYTHONHASHSEED: a repeated grade would then iterate over sets in another order.
    """
    code = f"import sys; sys.path.insert(0, {str(IMPORT_ROOT)!r}); from {module} import main; main()"
    return [sys.executable, "-s", "-P", "-B", "-c", code, *arguments]


def environment() -> dict[str, str]:
    """The child's complete environment, the same for a cold and a warm child."""
    kept = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    return found | {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",  # the same grade on every machine; and CUDA does not start under RLIMIT_AS
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # c10d warns that a network namespace has no name resolution
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
    }


def main() -> None:
    """Entry of the fresh interpreter."""
    from labs.grading.sandbox import child

    given: dict[str, Any] = json.loads(sys.argv[1])
    sys.argv[1:] = []
    child.run(ChildSetup(**{**given, "folder": Path(given["folder"])}))
