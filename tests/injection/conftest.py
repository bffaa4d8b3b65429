"""The programs are imported as `injection.<module>`, here and by the command that measures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
