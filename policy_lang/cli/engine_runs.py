"""``policy runs ... --engine``: the runs on a durable engine, how one stands, ending one, answering what it asks.

Exit 0 if it is done, 1 if a run or a question is over, 2 if the engine or the id cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from policy_lang.cli import CLEAN, FINDINGS, engines
from policy_lang.cli import run as running

if TYPE_CHECKING:
    from engine.run.result import OpenRequest, RunResult
    from engine.runtimes.listing import Listed
    from engine.runtimes.protocol import Runtime
    from engine.runtimes.records import Report

MOST = 1000
"""So many runs are listed at most."""


def add_answer(parser: argparse.ArgumentParser) -> None:
    """What an answer says."""
    add = parser.add_argument
    add("--refuse", action="store_true", help="refuse what is asked (default: it is granted)")
    add("--args", metavar="JSON", help="the arguments with which the tool may run instead")
    add("--amount", metavar="QUANTITY", help="how much more (default: what is asked for)")
    add("--result", metavar="TEXT", help="the result of a call that you have executed yourself")
    add("--by", metavar="NAME", help="who answers (default: the user of this system)")


def run(args: argparse.Namespace) -> int:
    verb = {"list": _list, "show": _show, "cancel": _cancel, "answer": _answer}[args.verb]

    async def main() -> int:
        runtime = engines.runtime(args)
        try:
            return await verb(args, runtime)
        finally:
            await runtime.aclose()

    return running.told(f"policy runs {args.verb}", lambda _: asyncio.run(main()), args)


async def _list(args: argparse.Namespace, runtime: Runtime) -> int:
    from policy_lang.cli.runs_words import as_json

    listing: Callable[[], Awaitable[Sequence[Listed]]] = runtime.runs  # type: ignore[attr-defined]
    found = (await listing())[:MOST]
    if args.json:
        runs = [{"run": r.run, "status": r.status, "began": r.began, "why": r.why or None} for r in found]
        print(as_json({"engine": args.engine, "runs": runs}))
    elif found:
        print("\n".join(_table(found)))
    else:
        print("no run was ever begun there")
    return CLEAN


def _table(found: Sequence[Listed]) -> list[str]:
    from engine.store.shared import moment
    from policy_lang.cli.journals import plain

    names = [plain(each.run) for each in found]
    width = max(map(len, names))
    lines = []
    for name, each in zip(names, found, strict=True):
        began = "?" if each.began is None else moment(each.began)
        why = plain(each.why)
        lines.append(f"{name:<{width}}  {each.status:<7}  {began}  {why[:200]}".rstrip())
    return lines


async def _show(args: argparse.Namespace, runtime: Runtime) -> int:
    from policy_lang.cli import run_report, runs_words

    report = await runtime.peek(args.id)
    if report is None:
        result = await runtime.result(args.id)
        print(run_report.as_json(result, []) if args.json else "\n".join(_ended(result)))
    elif args.json:
        import msgspec

        print(runs_words.as_json(msgspec.to_builtins(report)))
    else:
        print("\n".join(_going(report)))
    return CLEAN


def _ended(result: RunResult) -> list[str]:
    from policy_lang.cli.run_report import summary
    from policy_lang.cli.run_view import printable

    return [*summary(result, []), *([f"  text     {printable(result.text)}"] if result.text else [])]


def _going(report: Report) -> list[str]:
    from engine.store.shared import moment
    from policy_lang.cli.journals import plain
    from policy_lang.cli.run_report import used_words

    seen = f", last seen {moment(report.at)}" if report.at else ""
    lines = [f"run {plain(report.run)}: {report.status}{seen}", f"  used     {used_words(report.used)}"]
    for request in report.requests:
        because = f"  [{request.because}]" if request.because else ""
        lines.append(f"  asks     {plain(request.id)}  {_question(request)}{because}")
    return lines


def _question(request: OpenRequest) -> str:
    from engine.core.decisions import Request
    from engine.store.protocol import Asked, RequestRecord
    from policy_lang.cli.approvals_words import question

    asked = Request(
        request.limit or request.tool, request.kind, tool=request.tool, resource=request.resource,
        used=request.used, maximum=request.maximum, up_to=request.up_to,
    )  # fmt: skip
    return question(RequestRecord(request.id, request.run, Asked(asked, request.arguments), 0))


async def _cancel(args: argparse.Namespace, runtime: Runtime) -> int:
    from policy_lang.cli.runs_words import as_json

    if await runtime.peek(args.id) is None:
        result = await runtime.result(args.id)
        print(f"policy runs cancel: run {args.id} has ended already: {result.status}", file=sys.stderr)
        return FINDINGS
    await runtime.cancel(args.id, args.cause)
    if args.json:
        print(as_json({"engine": args.engine, "cause": args.cause, "run": args.id}))
    else:
        print(f"run {args.id} is asked to end")
    return CLEAN


async def _answer(args: argparse.Namespace, runtime: Runtime) -> int:
    from engine.run.errors import RunError
    from engine.runtimes.protocol import run_of
    from policy_lang.cli.runs_words import as_json

    report = await runtime.peek(run_of(args.id))
    asked = () if report is None else report.requests
    request = next((each for each in asked if each.id == args.id), None)
    if request is None:
        there = f"; it asks {', '.join(each.id for each in asked)}" if asked else ""
        print(f"policy runs answer: run {run_of(args.id)} does not ask {args.id} (any more){there}", file=sys.stderr)
        return FINDINGS
    given = _given(args, request)
    try:
        await runtime.answer(request.id, not args.refuse, **given)
    except RunError as problem:
        raise running.Unusable(str(problem)) from None
    said = "refused" if args.refuse else "granted"
    print(as_json({"request": request.id, "answer": said}) if args.json else f"{request.id}: {said}")
    return CLEAN


def _given(args: argparse.Namespace, request: OpenRequest) -> dict[str, Any]:
    """What goes with an answer. Raises ``Unusable``, ``NotFound`` for options that do not fit the question."""
    import json

    from policy_lang.cli.approvals import amount_of, user

    by = args.by if args.by is not None else user()
    if args.refuse:
        if extra := [name for name in ("args", "amount", "result") if getattr(args, name) is not None]:
            raise running.Unusable(f"--refuse needs nothing more: leave --{extra[0]} out")
        return {"by": by}
    if request.kind == "external" and args.result is None:
        raise running.Unusable(f"request {request.id} waits for the result of a call: give it with --result TEXT")
    given: dict[str, Any] = {"by": by, "result": args.result}
    if args.amount is not None:
        given["amount"] = amount_of(args.amount, request.id, request.kind, request.resource)
    if args.args is not None:
        try:
            given["args"] = json.loads(args.args)
        except ValueError as problem:
            raise running.Unusable(f"--args is no JSON: {problem}") from None
        if not isinstance(given["args"], dict):
            raise running.Unusable("--args is no JSON object")
    return given
