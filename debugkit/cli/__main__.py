"""`python -m debugkit.cli`."""

from debugkit.cli import main

main()
