"""Where a framework is not installed, importing its integration says so in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("integration", "absent", "command"),
    [
        ("transformers", "transformers", "pip install 'transformers[torch]'"),
        ("lightning", "lightning", "pip install lightning"),
        ("accelerate", "accelerate", "pip install accelerate"),
    ],
)
def test_the_error_says_what_to_install(integration: str, absent: str, command: str) -> None:
    program = f"import sys; sys.modules[{absent!r}] = None\nimport debugkit.integrations.{integration}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(("ImportError: ", "ModuleNotFoundError: "))
    assert "is not installed" in last
    assert command in last
