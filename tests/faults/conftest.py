"""Faults are imported as `faults.<topic>`, and the programs that they are planted in as `healthy.<topic>`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
