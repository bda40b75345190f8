"""The durable engines that commands name: their options, what has to be installed, and a runtime for one.

Which commands there are is the business of ``serve.py``, ``submit.py`` and ``engine_runs.py``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from policy_lang.cli import run_agents, run_clients
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.run import Unusable, resolvers_of
from policy_lang.cli.run_options import positive

if TYPE_CHECKING:
    from engine.run.driver import Driver
    from engine.runtimes.protocol import Runtime
    from engine.telemetry import Telemetry


class Engine(NamedTuple):
    """How one is reached. ``needs`` are the modules of its ``extra``, ``client`` those that a runtime needs.

    ``address``: the default, empty where there is none. ``options``: what both sides may be told, by the keywords that
    they take it as; ``serving``: workers alone. ``secret``: the environment variable and keyword of a token. ``opens``
    makes its runtime.
    """

    title: str
    needs: tuple[str, ...]
    client: tuple[str, ...]
    address: str
    options: Mapping[str, str]
    serving: Mapping[str, str]
    secret: tuple[str, str] | None = None
    opens: str = "open_runtime"


ENGINES: Mapping[str, Engine] = {
    "dbos": Engine("DBOS", ("dbos",), ("dbos",), "", {"queue": "queue"}, {}, opens="DBOSRuntime"),
    "restate": Engine(
        "Restate",
        ("restate", "hypercorn"),
        (),
        "http://127.0.0.1:8080",
        {"queue": "service", "admin": "admin"},
        {"listen": "listen", "url": "url", "replace": "replace"},
        ("RESTATE_AUTH_TOKEN", "token"),
    ),
    "temporal": Engine(
        "Temporal",
        ("temporalio",),
        ("temporalio",),
        "127.0.0.1:7233",
        {"queue": "queue", "namespace": "namespace", "contents": "contents"},
        {},
        ("TEMPORAL_API_KEY", "api_key"),
    ),
}


def add_engine(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """``--engine`` and where it is."""
    add = parser.add_argument
    add("--engine", choices=sorted(ENGINES), required=required, help="the durable engine that carries runs out")
    add(
        "--address",
        metavar="ADDRESS",
        default="",
        help="where it is: Restate's ingress (default: http://127.0.0.1:8080), Temporal's server (default: "
        "127.0.0.1:7233), the database of DBOS (sqlite:///FILE or postgresql://USER@HOST/NAME)",
    )
    add("--queue", metavar="NAME", help="the name under which the workers of this policy serve")
    add("--admin", metavar="URL", help="Restate: where it is administered (default: port 9070 of the same host)")
    add("--namespace", metavar="NAME", help="Temporal: the namespace")
    add(
        "--contents",
        metavar="WHERE",
        help="Temporal: where all of its workers keep what runs say, a file or postgresql://USER@HOST/NAME",
    )


def add_worker(parser: argparse.ArgumentParser) -> None:
    """What workers alone are told."""
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", help="Restate: where it calls this worker (default: 127.0.0.1:9080)")
    add("--url", metavar="URL", help="Restate: the same as Restate sees it, behind a proxy")
    add("--replace", action="store_true", help="Restate: take the place of the worker that was at this address before")


def add_host(parser: argparse.ArgumentParser) -> None:
    """The policy file, and what a host brings to its runs: the same for those who submit and those who serve."""
    parser.add_argument("file", metavar="FILE", help="the policy file")
    run_clients.add_arguments(parser)
    add = parser.add_argument
    add("--tools", action="append", default=[], metavar="FILE.py", help="tools: a Python file or module (repeatable)")
    run_agents.add_argument(parser)
    add("--resolvers", action="append", default=[], metavar="FILE.py", help="the functions of `using` and `consult`")
    add("--max-output", metavar="TOKENS", type=positive, help="the largest output of one call")
    add_policy_options(parser)


def driver(args: argparse.Namespace, telemetry: Telemetry | None = None) -> Driver:
    """What the options of ``add_host`` make. Raises as ``policy run`` does."""
    from engine.run.decision_log import DecisionLog
    from engine.run.driver import Driver
    from policy_lang import load
    from policy_lang.cli import host_files

    policy = load(args.file, root=args.root, **dict(args.set))
    settings = run_clients.settings_of(args)
    agents = run_agents.registered(args.agents, settings)
    clients = run_clients.clients(args, policy, None, settings, run_agents.wanted(agents))
    tools = host_files.tools(args.tools)
    if agents:
        run_agents.check_tools(tools)
    run_agents.hint(policy, agents, args.told_as)
    log = getattr(args, "log", None)
    try:
        return Driver(
            policy,
            clients,
            tools,
            agents=[each.agent for each in agents],
            system=getattr(args, "system", None),
            resolvers=resolvers_of(args, policy),
            log=DecisionLog(log, contents=args.log_contents) if log else None,
            max_output=args.max_output,
            telemetry=telemetry,
        )
    except ValueError as problem:  # agents that do not fit the rest
        raise Unusable(str(problem)) from None


def runtime(args: argparse.Namespace, driver: Driver | None = None) -> Runtime:
    """The runtime that is meant. Raises ``Unusable``, ``RunError``."""
    engine = ENGINES[args.engine]
    opened: Callable[..., Runtime] = getattr(_imported(args.engine, engine.client), engine.opens)
    return opened(driver, *_address(args, engine), **_keywords(args, engine, engine.options))


def worker(args: argparse.Namespace) -> tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]:
    """``serve`` of the engine that is meant, with the address and options for it. Raises ``Unusable``."""
    engine = ENGINES[args.engine]
    serve = _imported(args.engine, engine.needs).serve
    return serve, _address(args, engine), _keywords(args, engine, {**engine.options, **engine.serving})


def _imported(name: str, needs: tuple[str, ...]) -> Any:
    for module in needs:
        try:
            import_module(module)
        except ModuleNotFoundError:
            raise Unusable(
                f"{ENGINES[name].title} needs an extra that is not installed: pip install 'policy-lang[{name}]'"
            ) from None
    return import_module(f"engine.runtimes.{name}")


def _address(args: argparse.Namespace, engine: Engine) -> tuple[str, ...]:
    if not args.address and not engine.address:
        raise Unusable(f"{engine.title} needs an --address: {_DATABASE}")
    return (args.address or engine.address,)


_DATABASE = "sqlite:///FILE, or postgresql://USER@HOST/NAME"


def _keywords(args: argparse.Namespace, engine: Engine, taken: Mapping[str, str]) -> dict[str, Any]:
    """What was given, as keywords. Raises ``Unusable`` for an option of another engine."""
    every = {option for each in ENGINES.values() for option in (*each.options, *each.serving)}
    for option in sorted(every - set(taken)):
        if getattr(args, option, None):
            raise Unusable(f"--{option} says nothing to {engine.title}")
    found = {taken[option]: given for option in taken if (given := getattr(args, option, None))}
    if engine.secret is not None and (token := os.environ.get(engine.secret[0], "").strip()):
        found[engine.secret[1]] = token
    return found
