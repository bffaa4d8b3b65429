"""What probes and experiments hand to rules: frozen dataclasses of plain data, one file per topic, without torch.

Plain means: str, int, float, bool, None, tuples of them, `SourceLine`, and further such dataclasses. No tensor, no
module: a judge can then be tested with made-up numbers, and a report can be written without the model.
"""
