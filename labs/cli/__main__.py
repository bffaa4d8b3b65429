"""`python -m labs.cli`, the same as `lab`."""

import sys

from labs.cli import main

sys.exit(main())
