"""``policy serve``: a worker that carries out the runs of one policy on a durable engine, until it is stopped.

Exit 0 when it was stopped politely, 130 for Ctrl-C, 2 if it cannot serve as asked, or the engine is not there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import signal
import sys
from contextlib import ExitStack

from policy_lang.cli import CLEAN, engines
from policy_lang.cli import run as running


def add_arguments(parser: argparse.ArgumentParser) -> None:
    engines.add_host(parser)
    engines.add_engine(parser)
    engines.add_worker(parser)
    add = parser.add_argument
    add("--log", metavar="FILE", help="append one line of JSON for each decision (with --log-contents: texts too)")
    add("--log-contents", action="store_true", help="write what models, tools and people said into the log as well")
    add("--otel", action="store_true", help="report to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_* names")


def run(args: argparse.Namespace) -> int:
    return running.told("policy serve", _serve, args)


def _serve(args: argparse.Namespace) -> int:
    serve, address, options = engines.worker(args)
    with ExitStack() as ending:
        telemetry = None
        if args.otel:
            from policy_lang.cli.run_otel import exporting

            telemetry, finish = exporting()
            ending.callback(finish)
        driver = engines.driver(args, telemetry)
        ready = asyncio.Event()
        if "ready" in inspect.signature(serve).parameters:
            options["ready"] = ready
        else:
            ready.set()

        async def main() -> None:
            _stopped_by_a_polite_kill()
            telling = asyncio.ensure_future(_told(args, ready, address[0]))
            try:
                await serve(driver, *address, **options)
            finally:
                telling.cancel()
                with contextlib.suppress(Exception):
                    await driver.aclose()

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(main())
    return CLEAN


async def _told(args: argparse.Namespace, ready: asyncio.Event, address: str) -> None:
    await ready.wait()
    where = address.rpartition("@")[2]  # an address may have a password in it
    print(f"policy serve: {args.file} on {engines.ENGINES[args.engine].title} at {where}", file=sys.stderr, flush=True)


def _stopped_by_a_polite_kill() -> None:
    """SIGTERM ends the worker as if whoever started it had cancelled it: what goes on is left to the engine."""
    main = asyncio.current_task()
    assert main is not None
    with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows, or not the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
