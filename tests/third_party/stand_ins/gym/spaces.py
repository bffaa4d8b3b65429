"""The spaces of gymnasium."""

from gymnasium.spaces import *  # noqa: F403
