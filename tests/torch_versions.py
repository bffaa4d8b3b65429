"""What the oldest supported torch lacks. The tests that need it are skipped there, with the reason."""

from __future__ import annotations

import pytest
from torch.utils import backend_registration

HAS_PYTHON_DEVICE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
needs_python_device = pytest.mark.skipif(
    not HAS_PYTHON_DEVICE, reason="this torch cannot hold a device made in Python (2.10 can): nothing is simulated"
)
