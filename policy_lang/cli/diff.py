"""``policy diff``: what two versions of a policy say otherwise, and whether that allows more.

Exit 0 if nothing is looser, 1 if something is looser or incomparable, 2 if a file has errors or the command was wrong,
3 if something is not known. ``--fail-on`` moves the line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.searching import Progress, add_search_options
from policy_lang.cli.terminal import in_colour, in_full
from policy_lang.walking import policy_files

if TYPE_CHECKING:
    from policy_lang.comparing.verdict import Difference
    from policy_lang.comparing.versions import Version

UNKNOWN = 3
"""Exit code: something is not known."""

LEVELS = ("looser", "different", "never")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "exit codes: 0 nothing is looser, 1 something is looser, incomparable or removed (or different at all, with\n"
        "            --fail-on different), 2 a file has errors or cannot be read, or a wrong command line,\n"
        "            3 something is not known"
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="two policy files, the old one first; or, with --against, files and directories as they are now;"
        " `git:REV:path` is a file as it was in a revision",
    )
    parser.add_argument(
        "--against", metavar="OLD", help="`git:REV`: compare each file with itself in a revision; or one other file"
    )
    parser.add_argument(
        "--fail-on", choices=LEVELS, default="looser", help="what makes the exit code other than 0 (default: looser)"
    )
    parser.add_argument("--all", action="store_true", help="show a run for each kind of difference")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    add_search_options(parser)
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    from policy_lang.comparing.versions import GitError

    made: list[Difference] = []
    try:
        for old, new in _pairs(args):
            made.append(_compared(old, new, args))
            if not args.json:
                _print(made[-1], args)
    except (GitError, _WrongError) as problem:
        print(f"policy diff: {problem}", file=sys.stderr)
        return USAGE
    if args.json:
        from policy_lang.comparing.as_json import document

        print(document(made))
    elif len(made) > 1:
        from policy_lang.comparing.told import summary

        print(summary(made))
    return _code([one.result for one in made], args.fail_on)


class _WrongError(Exception):
    """The command line asks for nothing that could be compared. The message says what can be done."""


def _code(results: Sequence[str], level: str) -> int:
    if "errors" in results:
        return USAGE
    if level == "never":
        return CLEAN
    bad = {"looser", "incomparable", "removed"} | ({"stricter", "new"} if level == "different" else set())
    if bad & set(results):
        return FINDINGS
    return UNKNOWN if "unknown" in results else CLEAN


def _pairs(args: argparse.Namespace) -> Iterator[tuple[Version, Version]]:
    """Both versions of each file that is to be compared."""
    from policy_lang.comparing.versions import PREFIX

    names: list[str] = args.files
    if args.against is None:
        if len(names) != 2:
            word = "is one file" if len(names) == 1 else f"are {len(names)} files"
            raise _WrongError(f"there {word}: name the old one and the new one, or say --against git:REV")
        yield _version(names[0], args), _version(names[1], args)
    elif not args.against.startswith(PREFIX) or _path_of(args.against):
        if len(names) != 1:
            raise _WrongError("--against names one file: name one other to compare it with")
        yield _version(args.against, args), _version(names[0], args)
    else:
        yield from _in_revision(args.against.removeprefix(PREFIX), names, args)


def _in_revision(revision: str, names: Sequence[str], args: argparse.Namespace) -> Iterator[tuple[Version, Version]]:
    from policy_lang.comparing.versions import Repository, in_git, on_disk

    paths: list[str] = []
    for name in names:
        if name.startswith("git:"):
            raise _WrongError(f"with --against a file is named as it is now: `{_path_of(name) or name}`")
        if os.path.isdir(name):
            now = [os.path.normpath(path) for path in policy_files(name)]
            paths += sorted({*now, *Repository(os.path.join(name, "."), revision).policies(name)})
        else:
            paths.append(name)
    if not paths:
        raise _WrongError(f"no *.policy files in {', '.join(names)}")
    for path in dict.fromkeys(paths):
        yield in_git(revision, path, args.root, dict(args.set)), on_disk(path, args.root, dict(args.set))


def _path_of(name: str) -> str:
    from policy_lang.comparing.versions import split

    return split(name)[1]


def _version(name: str, args: argparse.Namespace) -> Version:
    from policy_lang.comparing.versions import PREFIX, in_git, on_disk, split

    if not name.startswith(PREFIX):
        found = on_disk(name, args.root, dict(args.set))
    else:
        revision, path = split(name)
        if not path:
            raise _WrongError(f"`{name}` names no file: write `{name}:PATH`")
        found = in_git(revision, path, args.root, dict(args.set))
    return found._replace(missing=False)  # it was named, so it is an error that it is not there


def _compared(old: Version, new: Version, args: argparse.Namespace) -> Difference:
    from engine.verify.verdicts import Budget
    from policy_lang.comparing.verdict import difference

    present = [version for version in (old, new) if version.policy is not None]
    nowhere = frozenset.intersection(*(version.unset for version in present)) if present else frozenset()
    if nowhere:
        names = ", ".join(f"`{name}`" for name in sorted(nowhere))
        raise _WrongError(f"--set: neither {old.name} nor {new.name} has a param {names}")
    told = Progress(new.name)
    made = difference(old, new, Budget(args.max_states, args.timeout, args.max_open), told)
    told.over()
    return made


def _print(made: Difference, args: argparse.Namespace) -> None:
    from policy_lang.comparing.told import report
    from policy_lang.testing.report import coloured, plain

    if made.result == "errors":
        for version in (made.old, made.new):
            if version.policy is None:
                print(in_full(version.findings), end="\n\n", flush=True)
        return
    paint = coloured if in_colour() else plain
    print("\n".join(report(made, every=args.all, paint=paint)), end="\n\n", flush=True)
