"""``policy lint``: what is wrong with policy files, and what all rules find in them.

``findings`` says how it is shown and what the exit codes mean.
"""

from __future__ import annotations

import argparse

from policy_lang.cli import findings
from policy_lang.diagnostics import Diagnostic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    findings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return findings.run("lint", args, _Lints(args))


class _Lints:
    """Lints one file after another."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.root: str | None = args.root
        self.params = dict(args.set)
        self.clients = findings.Clients(args)

    def __call__(self, path: str) -> list[Diagnostic]:
        from policy_lang import lint

        return lint(path, root=self.root, params=self.params, clients=self.clients.of(path))
