"""Lets the fixtures share `two_ranks`: pytest's importlib mode puts no folder on the path itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
