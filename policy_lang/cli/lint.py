"""``policy lint``: what is wrong with policy files, and what all rules find in them.

``findings`` says how it is shown and what the exit codes mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from policy_lang.cli import findings
from policy_lang.cli.terminal import STDIN
from policy_lang.diagnostics import Diagnostic
from policy_lang.linting import Linter

_ENOUGH_TO_REMEMBER = 10
"""With fewer files, looking at them takes no longer than finding out that they are the same."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    findings.add_arguments(parser)
    add_host_arguments(parser)
    parser.add_argument("--explore", action="store_true", help="visit all states of each policy, to find dead rules")
    parser.add_argument(
        "--explore-seconds",
        type=_seconds,
        metavar="N",
        help="time to visit the states of one policy (default: 1); asks for --explore",
    )
    cache = parser.add_mutually_exclusive_group()
    cache.add_argument("--no-cache", action="store_true", help="look at files anew that have not changed")
    cache.add_argument(
        "--cache-dir",
        metavar="DIR",
        help=f"where findings are kept for the next run, from {_ENOUGH_TO_REMEMBER} files on (default: .policy_cache)",
    )


def add_host_arguments(parser: argparse.ArgumentParser) -> None:
    """``args.tools`` and ``args.host``: what the host has, as far as that is not in the settings."""
    parser.add_argument(
        "--tools", metavar="NAME,…", type=findings.names, help="the host's tools; a pattern that matches none is told"
    )
    parser.add_argument(
        "--host",
        metavar="NAME",
        type=_profile,
        help="where the policy is to run, as in `langchain`, or what that host is able to do, as in `veto,gate`; "
        "what it cannot honour is told",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of seconds, above 0 and at most a day")
    return seconds


def _profile(text: str) -> list[str]:
    """What a host is able to do, that is named or told by its abilities."""
    from engine.core.host import ABILITIES
    from policy_lang import host_names
    from policy_lang.names import nearest

    found = findings.names(text)
    if len(found) == 1 and found[0] not in ABILITIES:
        profile = host_names.by_name(found[0])
        if isinstance(profile, tuple):
            return list(profile)
        near = nearest(found[0], ABILITIES)
        help = f"did you mean `{near}`?" if near and "known: " in profile else profile
        raise argparse.ArgumentTypeError(f"unknown host `{found[0]}`; {help}")
    for name, help in host_names.unknown(found):
        raise argparse.ArgumentTypeError(f"unknown ability `{name}` of a host; {help}")
    return found


def linter_of(args: argparse.Namespace, seconds: float | None = None) -> Linter:
    """What the options say about how files are looked at."""
    return Linter(
        root=args.root,
        params=dict(args.set),
        clients=args.clients,
        tools=args.tools,
        host=args.host,
        file=args.settings,
        seconds=seconds,
    )


def run(args: argparse.Namespace) -> int:
    linter = linter_of(args, args.explore_seconds or (1.0 if args.explore else None))
    return findings.run("lint", args, lambda files: _told(linter, files, args), lambda text: _of_text(linter, text))


def _of_text(linter: Linter, text: str) -> list[Diagnostic]:
    """What is found in the standard input, under the settings of the current directory."""
    from policy_lang.fixing.files import Files

    found = Files(linter, lambda _: text).look(STDIN).findings
    return [*linter.settings_of(STDIN).problems, *found]


def _told(linter: Linter, files: list[str], args: argparse.Namespace) -> Iterator[list[Diagnostic]]:
    """What is found in each file, in their order; that of unchanged files is remembered."""
    known: dict[str, list[Diagnostic]] = {}
    cache = None
    if not args.no_cache and (args.cache_dir or len(files) >= _ENOUGH_TO_REMEMBER):
        from policy_lang.lint_cache import DIRECTORY, Cache

        cache = Cache(args.cache_dir or DIRECTORY)
        found = ((path, cache.get(path, linter.key(path))) for path in files)
        known = {path: findings for path, findings in found if findings is not None}
    new = findings.in_processes(linter.told, [path for path in files if path not in known], args.jobs)
    for path in files:
        if path in known:
            yield [*linter.settings_of(path).problems, *known[path]]
            continue
        told = next(new)
        if cache is not None:
            cache.put(path, linter.key(path), told.read, told.findings)
        yield [*linter.settings_of(path).problems, *told.findings]
    if cache is not None:
        cache.save()
