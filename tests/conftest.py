"""One thread a process: `pytest -n` fills the cores with processes, and at one thread results repeat bitwise."""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for the processes that tests start
if "torch" in sys.modules:
    sys.modules["torch"].set_num_threads(1)

# Two workers share two cores: how long an example takes says nothing of the code.
settings.register_profile("no wall clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no wall clock")
