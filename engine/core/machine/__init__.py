"""The machine a policy compiles to, and everything that is made from it."""
