"""Building blocks of active measurements: repeated passes, changed batches, digests, and the roles of batch entries."""
