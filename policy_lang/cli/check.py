"""``policy check``: what is wrong with policy files. ``findings`` says how it is shown and what the exit codes mean."""

from __future__ import annotations

import argparse

from policy_lang.cli import findings
from policy_lang.cli.terminal import STDIN
from policy_lang.diagnostics import Diagnostic
from policy_lang.linting import Clients


def add_arguments(parser: argparse.ArgumentParser) -> None:
    findings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    check = _Checks(args)
    return findings.run("check", args, lambda files: findings.in_processes(check, files, args.jobs), check.of_text)


class _Checks:
    """Checks one file after another."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.root: str | None = args.root
        self.params = dict(args.set)
        self.clients = Clients(args.root, args.clients, args.settings)

    def __call__(self, path: str) -> list[Diagnostic]:
        from policy_lang import check

        return check(path, root=self.root, params=self.params, clients=self.clients.of(path))[1]

    def of_text(self, text: str) -> list[Diagnostic]:
        from policy_lang import checks

        clients = self.clients.of(STDIN)
        return checks(text, STDIN, root=self.root or ".", params=self.params, clients=clients)[1]
