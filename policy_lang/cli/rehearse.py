"""``policy rehearse SCRIPT``: a scripted model server on loopback, one line for each request it gets."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING

from policy_lang.cli.stopping import stop_asked

if TYPE_CHECKING:
    from engine.rehearsal import Entry, Rehearsal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", metavar="SCRIPT", help="the script, a TOML file (see docs/rehearsal.md)")
    parser.add_argument("--port", type=_port, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--quiet", action="store_true", help="print the address only, no line for each request")


def run(args: argparse.Namespace) -> int:
    """0 when stopped with Ctrl-C; 2 for a script that cannot be used or a port that cannot be had."""
    from engine.rehearsal import Rehearsal, RehearsalError, ScriptError

    try:
        rehearsal = Rehearsal(args.script, port=args.port, on_entry=None if args.quiet else _print_entry)
        asyncio.run(_serve(rehearsal))
    except (ScriptError, RehearsalError) as exc:
        print(f"policy rehearse: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # where no signal handler can be set
        return 0
    return 0


async def _serve(rehearsal: Rehearsal) -> None:
    stop = stop_asked()
    async with rehearsal:
        print(f"rehearsing {rehearsal.script.name} on {rehearsal.url}")
        print(f"  openai:NAME     --base-url {rehearsal.url}/v1")
        print(f"  anthropic:NAME  --base-url {rehearsal.url}")
        print(f"  what it received: GET {rehearsal.url}/ledger; begin again: POST {rehearsal.url}/reset", flush=True)
        await stop.wait()


def _print_entry(entry: Entry) -> None:
    print(describe(entry), flush=True)


def describe(entry: Entry) -> str:
    """One line: when, what came, how it was answered, tokens, how long it took."""
    clock = time.strftime("%H:%M:%S", time.localtime(entry.at_ms / 1000))
    messages = entry.body.get("messages") if isinstance(entry.body, dict) else None
    count = len(messages) if isinstance(messages, list) else 0
    came = f"{count} message{'' if count == 1 else 's'}"
    tools = f"{len(entry.offered)} tool{'' if len(entry.offered) == 1 else 's'}" if entry.offered else "no tools"
    how = f"reply {entry.reply}: {entry.answered}" if entry.reply else entry.answered
    if entry.problem:
        how = f"400 {entry.problem}"
    tokens = f"  ({entry.usage.input} in, {entry.usage.output} out)" if entry.usage else ""
    left = "  client left" if entry.client_left else ""
    kind = f"{entry.wire} {entry.model or '(no model)'}{' stream' if entry.stream else ''}"
    line = f"{clock} #{entry.number}  {kind}  {came}, {tools}  -> {how}{tokens}{left}  {entry.duration_ms} ms"
    return "".join(c if c.isprintable() else " " for c in line)  # much of it is the client's own text


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:6]) > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is no port; give a number from 0 to 65535")
    return int(text)
