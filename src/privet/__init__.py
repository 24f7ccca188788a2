"""privet: train deep models on private data, know what was spent, and attack the promise."""
