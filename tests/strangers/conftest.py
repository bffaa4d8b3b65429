"""Programs are imported as `healthy.<topic>`, here and by the command that measures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
