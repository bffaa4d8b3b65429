"""Where a framework is not installed, importing its integration says so in one sentence."""

from __future__ import annotations

import importlib
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
def test_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, integration: str, absent: str, command: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{absent}.")]:
        monkeypatch.delitem(sys.modules, name)  # another test may have imported it
    monkeypatch.setitem(sys.modules, absent, None)
    monkeypatch.delitem(sys.modules, f"debugkit.integrations.{integration}", raising=False)
    with pytest.raises(ImportError, match="is not installed") as raised:
        importlib.import_module(f"debugkit.integrations.{integration}")
    assert command in str(raised.value)
