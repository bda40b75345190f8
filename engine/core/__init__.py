"""The meaning of a policy, all of it. Pure: no I/O, no clock, no randomness."""
