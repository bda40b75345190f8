"""The options of every command that drives a run: what the host brings, and where the run is told."""

from __future__ import annotations

import argparse

from policy_lang.cli import run_agents, run_clients, run_people


def add_host_options(parser: argparse.ArgumentParser) -> None:
    """Clients, tools, resolvers, logs: what is given again when a run is resumed."""
    run_clients.add_arguments(parser)
    add = parser.add_argument
    add("--tools", action="append", default=[], metavar="FILE.py", help="tools: a Python file or module (repeatable)")
    run_agents.add_argument(parser)
    add("--resolvers", action="append", default=[], metavar="FILE.py", help="the functions of `using` and `consult`")
    run_people.add_argument(parser)
    add(
        "--migrate", action="store_true", help="resume a run also under another policy, model or resolvers than its own"
    )
    add("--log", metavar="FILE", help="append one line of JSON for each decision (with --log-contents: texts too)")
    add("--log-contents", action="store_true", help="write what models, tools and people said into the log as well")
    add("--otel", action="store_true", help="report to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_* names")
    add("--json", action="store_true", help="print one JSON document, nothing else")


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number above 0")
    return int(text)
