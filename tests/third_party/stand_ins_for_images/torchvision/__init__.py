"""A stand-in for torchvision: synthetic images behind the same names. It has only what the scripts use."""

from . import datasets, transforms, utils

__all__ = ["datasets", "transforms", "utils"]
__version__ = "0.0.0"
