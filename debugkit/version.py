"""The version of debugkit."""

__version__ = "0.1.0"
