"""Runs on durable engines: the same loop and the same policy, where a process that dies is only a pause.

What all engines have in common is here, each engine's own half in a module of its name that needs an extra.
"""
