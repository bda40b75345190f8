"""Proofs about all numbers at once: machine, laws and the arithmetic of amounts as terms that a solver decides."""
