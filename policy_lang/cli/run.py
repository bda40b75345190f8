"""``policy run``: one governed run against a real model (or one that speaks its wire format).

The answer goes to standard output, everything else to standard error. Exit 0 if there is an answer
(completed or finalized), 1 if there is none (a limit, an error), 2 if the run cannot be made as
asked, 3 if it is suspended (it waits for people, and can be resumed), 130 if it was cancelled
(Ctrl-C: once to end it properly, twice to leave at once).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from policy_lang.cli import USAGE, run_agents, run_clients, run_options, run_people
from policy_lang.cli.options import add_policy_options
from policy_lang.names import quoted

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.run.driver import Driver
    from engine.run.result import RunResult
    from engine.store.protocol import RunRecord
    from engine.store.sqlite import SqliteStore
    from engine.telemetry import Telemetry
    from policy_lang.cli.run_view import PlainView

ANSWERED, UNANSWERED, SUSPENDED, CANCELLED = 0, 1, 3, 130


class _Resume(argparse.Action):
    """``--resume`` needs neither a file nor a question: the journal has both."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        namespace.resume = values
        for action in parser._positionals._group_actions:
            action.required = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="the policy file")
    add("question", metavar="QUESTION", help="what to ask the model; - reads it from standard input")
    run_options.add_host_options(parser)
    add("--system", metavar="TEXT", help="the system message")
    add("--max-output", metavar="TOKENS", type=run_options.positive, help="the largest output of one call")
    add("--thread", metavar="ID", help="the conversation that the run belongs to, for limits per thread")
    add("--journal", metavar="PATH", help="keep the run in this file, so that it can be resumed and replayed")
    add("--resume", action=_Resume, metavar="ID", help="go on with a run that was killed (needs --journal)")
    add_policy_options(parser)


def run(args: argparse.Namespace, command: str = "policy run") -> int:
    """Make or resume the run. ``command`` is what speaks to the user."""
    return told(command, _run, args)


def told(command: str, what: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Do something about runs, for a ``command`` that speaks to the user; what is wrong is told in one line."""
    args.told_as = command
    from engine.clients import ClientConfigError
    from engine.run.driver import RunError
    from engine.run.effects import ProtocolError
    from engine.run.tools import ToolDefinitionError
    from engine.runtimes.protocol import RuntimeUnreachableError
    from engine.store import JournalError
    from policy_lang import PolicyError
    from policy_lang.cli.host_files import HostFileError
    from policy_lang.cli.journals import NotFound
    from policy_lang.cli.run_otel import NotInstalledError
    from policy_lang.settings import SettingsError

    expected = (
        Unusable, run_clients.ClientsError, SettingsError, HostFileError, ToolDefinitionError, ClientConfigError,
        RunError, JournalError, ProtocolError, NotInstalledError, NotFound, run_people.NobodyError,
        run_agents.AgentsError, RuntimeUnreachableError,
    )  # fmt: skip
    try:
        return what(args)
    except PolicyError as error:
        print(error, file=sys.stderr)
    except expected as error:
        print(f"{args.told_as}: {error}", file=sys.stderr)
    except KeyboardInterrupt:  # before the run had begun, or where signals are not ours
        print(_interrupted(args), file=sys.stderr)
        return CANCELLED
    return USAGE


class Unusable(Exception):
    """The arguments do not make a run. The message says what to do."""


def _run(args: argparse.Namespace) -> int:
    with ExitStack() as ending:
        store = _store(args)
        if store is not None:
            ending.callback(store.close)
        telemetry = None
        if args.otel:
            from policy_lang.cli.run_otel import exporting

            telemetry, finish = exporting()
            ending.callback(finish)
        view = _view()
        driver = _driver(args, store, view, telemetry)
        result, budgets = asyncio.run(_governed(args, driver, view))
        # Before anything is closed: a collector that does not answer must not keep the answer back.
        return report(args, result, budgets, store)


def _store(args: argparse.Namespace) -> SqliteStore | None:
    if args.resume is not None and args.journal is None:
        raise Unusable("--resume needs the --journal that the run was kept in")
    if args.migrate and args.resume is None:
        raise Unusable("--migrate is about a run that goes on: name it with --resume")
    if args.journal is None:
        return None
    if args.resume is not None and not os.path.exists(args.journal):
        raise Unusable(f"there is no journal {args.journal}")
    from engine.store.sqlite import SqliteStore

    return SqliteStore(args.journal)


def _view() -> PlainView:
    from policy_lang.cli.run_view import view_for

    return view_for(sys.stderr)


def _driver(
    args: argparse.Namespace, store: SqliteStore | None, view: PlainView, telemetry: Telemetry | None
) -> Driver:
    from engine.run.decision_log import DecisionLog
    from engine.run.driver import Driver
    from policy_lang.cli import host_files

    record = store.record(args.resume) if store is not None and args.resume is not None else None
    if record is not None and record.top != record.run:  # before anything that would be wanted for that run
        raise Unusable(f"run {record.run} is one of the tree below run {record.top}: resume that one")
    policy = _policy(args, record)
    view.limits = [limit.id for limit in policy.limits]
    settings = run_clients.settings_of(args)
    if settings is not None:
        args.settings = settings.path  # to be given again when the run is resumed
    agents = run_agents.registered(args.agents, settings)
    clients = run_clients.clients(args, policy, record, settings, run_agents.wanted(agents))
    tools = host_files.tools(args.tools)
    if agents:
        run_agents.check_tools(tools)
    if store is not None and record is not None:
        run_agents.check_resumed(store, record, agents)
    else:
        _hint_threads(policy, args)
        run_agents.hint(policy, agents, args.told_as)
    try:
        return Driver(
            policy,
            clients,
            tools,
            agents=[each.agent for each in agents],
            system=args.system,
            resolvers=resolvers_of(args, policy),
            approver=run_people.approver(args, policy, view),
            journal=store,
            log=DecisionLog(args.log, contents=args.log_contents) if args.log else None,
            max_output=args.max_output,
            telemetry=telemetry,
        )
    except ValueError as problem:  # agents that do not fit the rest
        raise Unusable(str(problem)) from None


def resolvers_of(args: argparse.Namespace, policy: Policy) -> dict[str, Any]:
    """The functions of `using` and `consult`; which of them are missing is told."""
    from policy_lang.cli import host_files

    resolvers = host_files.resolvers(args.resolvers)
    for name in policy.resolvers():
        if name not in resolvers:
            print(
                f"{args.told_as}: no --resolvers file has `{name}`: the step behind it will be taken", file=sys.stderr
            )
    return resolvers


def _hint_threads(policy: Policy, args: argparse.Namespace) -> None:
    """A limit per thread remembers what earlier runs used only where they say whose they are, and are kept."""
    names = [limit.id for limit in policy.limits if limit.scope == "thread" and limit.max is not None]
    if not names or (args.thread and args.journal):
        return
    counted = f"{quoted(names, 'and')} {'counts' if len(names) == 1 else 'count'} for this run alone"
    if args.thread:
        hint = f"without --journal PATH {counted}; with it the next run of the thread"
    else:
        hint = f"without --thread ID {counted}; with it and --journal PATH the next run"
    print(f"{args.told_as}: {hint} goes on from what this one used", file=sys.stderr)


def _policy(args: argparse.Namespace, record: RunRecord | None) -> Policy:
    from policy_lang import load
    from policy_lang.cli.stand_ins import stored_policy

    if args.file is not None:
        return load(args.file, root=args.root, **dict(args.set))
    assert record is not None
    return stored_policy(record)


async def _governed(args: argparse.Namespace, driver: Driver, view: PlainView) -> tuple[RunResult, list[Any]]:
    """The run, shown while it goes on; its result, and where each limit stands at its end."""
    if args.resume is not None:
        handle = driver.resume(args.resume, stream=True, migrate=args.migrate)
    else:
        handle = driver.stream(question(args), thread=args.thread)
    release = _on_interrupt(args, lambda: handle.cancel("user"))
    try:
        if args.json:
            async for event in handle:
                _keep(view, event)
        else:
            with view:
                async for event in handle:
                    view.show(event)
        return await handle, view.budgets
    finally:
        release()
        await driver.aclose()


def _keep(view: PlainView, event: Any) -> None:
    from engine.run.streaming import Budget

    if isinstance(event, Budget):
        view.show(event)


def question(args: argparse.Namespace) -> str:
    """The question, from wherever it comes. Raises ``Unusable`` if it, or what is said beside it, is no text."""
    for option, text in (("the question", args.question), ("--system", args.system), ("--thread", args.thread)):
        if text is not None and not _is_text(text):
            raise Unusable(f"{option} is not UTF-8 text")
    if args.question != "-":
        return str(args.question)
    source = getattr(sys.stdin, "buffer", None)
    if source is None:
        return sys.stdin.read() if sys.stdin is not None else ""
    try:
        return str(source.read(), "utf-8")
    except UnicodeDecodeError as problem:
        raise Unusable(f"the question on standard input is not UTF-8 text (at byte {problem.start + 1})") from None


def _is_text(text: str) -> bool:
    try:
        return bool(text.encode()) or not text
    except UnicodeEncodeError:  # bytes of the command line that are no UTF-8
        return False


def _on_interrupt(args: argparse.Namespace, cancel: Any) -> Any:
    """Ctrl-C (and a polite kill) cancels the run; a second one leaves at once."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupted() -> None:
        release()
        signal.signal(signal.SIGINT, lambda *_: _leave(args))
        cancel()

    def release() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    try:
        for number in numbers:
            loop.add_signal_handler(number, interrupted)
    except (NotImplementedError, RuntimeError):  # Windows, or not the main thread: Ctrl-C cancels the awaiting task
        return lambda: None

    def over() -> None:
        release()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return over


def _leave(args: argparse.Namespace) -> None:
    """The second Ctrl-C: nothing goes on from here, as if the process had been killed. The journal stands that."""
    shown = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # a live view hides the cursor
    with suppress(OSError, ValueError):  # not by `print`: one may be going on
        os.write(sys.stderr.fileno(), f"{shown}{_interrupted(args)}\n".encode())
    os._exit(CANCELLED)


def _interrupted(args: argparse.Namespace) -> str:
    resume = "; `--resume` with its id goes on with it" if args.journal else ""
    return f"{args.told_as}: interrupted, the run has not ended{resume}"


def report(args: argparse.Namespace, result: RunResult, budgets: list[Any], store: SqliteStore | None) -> int:
    """Print how a run ended, or that it waits; the exit code."""
    from policy_lang.cli.run_report import as_json, summary
    from policy_lang.cli.run_view import printable

    if args.json:
        print(as_json(result, budgets), flush=True)
    else:
        if result.text:
            print(printable(result.text) if sys.stdout.isatty() else result.text)
            sys.stdout.flush()
        lines = summary(result, budgets)
        if result.status == "suspended" and store is not None:
            lines += run_people.waiting(args, store, result)
        with suppress(OSError):  # nobody reads it any more: the exit code tells the outcome all the same
            print("\n".join(lines), file=sys.stderr)
    if result.status == "suspended":
        return SUSPENDED
    if result.status == "cancelled" and result.reason != "tool_stop":
        return CANCELLED
    return ANSWERED if result.ok else UNANSWERED
