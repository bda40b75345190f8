"""Policies in loops that are not ours: frameworks, SDKs and gateways, each in a module of its name.

What they have in common is ``session``: a run whose steps are asked for by hooks.
"""
