"""An integration whose framework is not installed says so, and what to install."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("integration", "framework", "distribution"),
    [
        ("accelerate", "accelerate", "accelerate"),
        ("lightning", "lightning", "lightning"),
        ("notebook", "IPython", "ipython"),
        ("transformers", "transformers", "'transformers[torch]'"),
    ],
)
def test_the_error_names_the_integration_and_the_distribution(
    integration: str, framework: str, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"debugkit.integrations.{integration}"
    for loaded in [one for one in sys.modules if one == framework or one.startswith(f"{framework}.")]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, framework, None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError) as raised:
        importlib.import_module(name)
    assert str(raised.value).startswith(f"{name} works inside ")
    assert str(raised.value).endswith(f"pip install {distribution}")
