"""What a learner owns: the workspace with their attempts, and their progress."""
