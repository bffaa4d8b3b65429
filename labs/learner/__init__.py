"""A learner's own data: the workspace with the attempts, and the progress."""
