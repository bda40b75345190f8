"""``policy submit``: begins a run on a durable engine, where a worker (``policy serve``) carries it out.

The id of the run goes to standard output; with ``--wait`` its answer, as ``policy run`` prints it. Exit 0 once the run
is begun (with ``--wait`` as ``policy run``), 2 if it cannot be begun as asked or the engine is not there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, engines
from policy_lang.cli import run as running

if TYPE_CHECKING:
    from engine.run.result import RunResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    engines.add_host(parser)
    add = parser.add_argument
    add("question", metavar="QUESTION", help="what to ask the model; - reads it from standard input")
    engines.add_engine(parser)
    add("--id", metavar="ID", help="the run's id: a second run of the same id is the same run (default: a new one)")
    add("--system", metavar="TEXT", help="the system message")
    add("--thread", metavar="ID", help="the conversation that the run belongs to")
    add("--wait", action="store_true", help="wait for the end of the run, and print its answer")
    add("--json", action="store_true", help="print one JSON document, nothing else")


def run(args: argparse.Namespace) -> int:
    return running.told("policy submit", _submit, args)


def _submit(args: argparse.Namespace) -> int:
    if args.id is not None and (not args.id.strip() or not args.id.isprintable()):
        raise running.Unusable(f"--id {args.id!r} is no id: it needs text that can be printed")
    run, result = asyncio.run(_begun(args))
    if result is not None:
        return running.report(args, result, [], None)
    print(json.dumps({"run": run}) if args.json else run)
    return CLEAN


async def _begun(args: argparse.Namespace) -> tuple[str, RunResult | None]:
    driver = engines.driver(args)
    runtime = engines.runtime(args, driver)
    try:
        run = await runtime.start(running.question(args), run_id=args.id, thread=args.thread)
        return run, await runtime.result(run) if args.wait else None
    finally:
        await runtime.aclose()
        await driver.aclose()
