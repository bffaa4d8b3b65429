"""tensorboardX, without files."""

from tensorboard_writer import SummaryWriter

__all__ = ["SummaryWriter"]
