"""``policy gateway --policy FILE --upstream URL``: a reverse proxy that governs agents by changing their base URL."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from policy_lang.cli.options import add_policy_options
from policy_lang.cli.run_clients import Model, named_model, named_url
from policy_lang.cli.stopping import stop_asked

if TYPE_CHECKING:
    from engine.gateway import Gateway, Route

_MIB = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--policy", required=True, metavar="FILE", help="the policy that every run is under")
    add_policy_options(parser)
    add("--upstream", required=True, metavar="URL", help="the provider, or any server that speaks its format")
    add(
        "--model",
        action="append",
        default=[],
        type=named_model,
        metavar="NAME=PROVIDER:MODEL",
        help="a client that the policy may switch to: openai:MODEL or anthropic:MODEL (repeatable)",
    )
    add(
        "--base-url",
        action="append",
        default=[],
        type=named_url,
        metavar="NAME=URL",
        help="the server of that client (default: the upstream, with the key of whoever asks); its key is read from "
        "OPENAI_API_KEY or ANTHROPIC_API_KEY",
    )
    add("--journal", metavar="PATH", help="keep runs in this file: limits per thread and of keys need it")
    add("--key-policy", metavar="FILE", help="limits on what all runs of one key use together")
    add(
        "--refuse",
        choices=("message", "error"),
        default="message",
        help="tell a run that was stopped as a reply of the model (default), or as an error of the provider",
    )
    add("--tool-failure", metavar="REGEX", help="what results of failed tools look like, where the format does not say")
    add("--strict", action="store_true", help="refuse paths that are not governed, instead of passing them through")
    add("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=8787, help="the port to listen on (default: 8787; 0 takes a free one)")
    add("--max-body", type=_positive, default=32, metavar="MIB", help="the largest request, and reply (default: 32)")
    add("--max-requests", type=_positive, default=1000, metavar="N", help="requests in hand at once (default: 1000)")
    add(
        "--timeout",
        type=_positive,
        default=60,
        metavar="S",
        help="seconds for a client to send its request, and to take in each piece of the answer (default: 60)",
    )
    add("--log", metavar="FILE", help="append one line of JSON for each decision (with --log-contents: texts too)")
    add("--log-contents", action="store_true", help="write the policy's own texts into the log as well")
    add("--otel", action="store_true", help="report to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_* names")


def run(args: argparse.Namespace) -> int:
    """0 when stopped with Ctrl-C or SIGTERM; 2 for what cannot be started so."""
    try:
        from engine.gateway import GatewayError
    except ImportError:
        print("policy gateway: it needs aiohttp: pip install 'policy-lang[gateway]'", file=sys.stderr)
        return 2
    from engine.run.errors import RunError
    from engine.store import JournalError
    from policy_lang import PolicyError
    from policy_lang.cli.run_otel import NotInstalledError

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="policy gateway: %(message)s")
    try:
        return _run(args)
    except PolicyError as error:
        print(error, file=sys.stderr)
    except (GatewayError, RunError, JournalError, NotInstalledError, OSError) as error:
        print(f"policy gateway: {error}", file=sys.stderr)
    except KeyboardInterrupt:  # where no signal handler can be set
        return 0
    return 2


def _run(args: argparse.Namespace) -> int:
    from engine.gateway import Bounds, Gateway
    from engine.run.decision_log import DecisionLog
    from engine.store.sqlite import SqliteStore
    from policy_lang import load

    policy = load(args.policy, root=args.root, **dict(args.set))
    keys = load(args.key_policy) if args.key_policy else None
    with ExitStack() as ending:
        journal = SqliteStore(args.journal) if args.journal else None
        if journal is not None:
            ending.callback(journal.close)
        telemetry = None
        if args.otel:
            from policy_lang.cli.run_otel import exporting

            telemetry, finish = exporting()
            ending.callback(finish)
        size = args.max_body * _MIB
        gateway = Gateway(
            policy,
            args.upstream,
            clients=_routes(args.model, args.base_url),
            key_policy=keys,
            journal=journal,
            log=DecisionLog(args.log, contents=args.log_contents) if args.log else None,
            telemetry=telemetry,
            refuse=args.refuse,
            tool_failure=args.tool_failure,
            strict=args.strict,
            bounds=Bounds(size, size, requests=args.max_requests, request_seconds=args.timeout),
            host=args.host,
            port=args.port,
        )
        asyncio.run(_serve(gateway))
    return 0


async def _serve(gateway: Gateway) -> None:
    stop = stop_asked()
    async with gateway:
        print(f"governed by {gateway.governor.policy.name} on {gateway.url}")
        print(f"  OpenAI's SDKs     base URL {gateway.url}/v1")
        print(f"  Anthropic's SDKs  base URL {gateway.url}", flush=True)
        await stop.wait()


def _routes(models: list[Model], urls: list[tuple[str, str]]) -> tuple[Route, ...]:
    from engine.clients.address import is_loopback
    from engine.clients.spec import PROVIDERS
    from engine.gateway import GatewayError, Route
    from engine.gateway.settings import checked_url

    at = dict(urls)
    found = []
    for model in models:
        provider, _, name = model.spec.partition(":")
        if not model.name or not name:
            raise GatewayError(f"`--model {model.spec}`: write NAME=PROVIDER:MODEL")
        if provider not in PROVIDERS:
            raise GatewayError(f"unknown provider `{provider}` (known: {', '.join(PROVIDERS)})")
        url = at.pop(model.name, "")
        env = PROVIDERS[provider].default_key_env
        if url:
            import httpx

            url = checked_url(url)
            if is_loopback(httpx.URL(url).host) and env not in os.environ:
                env = ""
        found.append(Route(model.name, provider, name, url, env if url else ""))
    if at:
        raise GatewayError(f"--base-url is for a client `{next(iter(at))}`, and none has that name")
    return tuple(found)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:9]) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no number above 0")
    return int(text[:9])
