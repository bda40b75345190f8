"""The policy engine: the pure core that decides, and what drives a run with it."""
