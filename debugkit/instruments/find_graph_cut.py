"""find_graph_cut: which line stops the gradient before it reaches parameters that should train."""

from debugkit.measurements.graph_cut import Cut, GraphCut
from debugkit.measurements.graph_cut.search import find_graph_cut

__all__ = ["Cut", "GraphCut", "find_graph_cut"]
