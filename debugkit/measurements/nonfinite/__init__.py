"""The measurement for DK201 and DK202. Its observation is `debugkit.step_replay.nonfinite.Nonfinite`."""
