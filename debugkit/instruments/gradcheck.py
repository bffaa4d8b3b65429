"""gradcheck: is a hand-written backward correct, also where torch.autograd.gradcheck does not look?"""

from debugkit.measurements.gradient_check import GradientCheck, GradientTest, WorstEntry
from debugkit.measurements.gradient_check.measure import gradcheck

__all__ = ["GradientCheck", "GradientTest", "WorstEntry", "gradcheck"]
