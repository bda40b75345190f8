"""``policy new [NAME]``: start a policy file, from a few questions in a terminal or from a template.

Exit 0 if the file was written, 2 if it was not, 130 if the questions were broken off.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from policy_lang.cli import CLEAN, USAGE
from policy_lang.cli.writing import NotWritten, write
from policy_lang.names import nearest
from policy_lang.renderers.snippet import clean
from policy_lang.starting import templates

SUFFIX = ".policy"
UNASKED = "agent.policy"
"""Name of a file where nobody gives one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help=f"the file to write; `{SUFFIX}` is added if it is missing"
    )
    parser.add_argument("--template", metavar="TEMPLATE", help="start from a template, without questions")
    parser.add_argument("--list", action="store_true", help="list the templates and exit")
    parser.add_argument("--force", action="store_true", help="write over a file that exists")


def run(args: argparse.Namespace) -> int:
    if args.list:
        print(_listed())
        return CLEAN
    try:
        if args.template is not None:
            return _from_template(args)
        if sys.stdin.isatty() and sys.stdout.isatty():
            return _from_answers(args)
    except NotWritten as problem:
        print(f"policy new: {clean(str(problem))}", file=sys.stderr)
        return USAGE
    print(
        "policy new: this is no terminal, so nothing can be asked; "
        f"write `policy new NAME --template TEMPLATE` with one of these:\n\n{_listed()}",
        file=sys.stderr,
    )
    return USAGE


def _listed() -> str:
    wide = max(map(len, templates.ORDER))
    return "\n".join(f"{name:{wide}}  {templates.summary(name)}" for name in templates.ORDER)


def _from_template(args: argparse.Namespace) -> int:
    name = args.template
    if name not in templates.ORDER:
        near = nearest(name, templates.ORDER)
        help = f"did you mean `{near}`?" if near else "`policy new --list` shows them"
        print(f"policy new: there is no template `{clean(name)}`; {help}", file=sys.stderr)
        return USAGE
    path = _path(name if args.name is None else args.name)
    write(path, templates.named(name, _policy_name(path)), over=args.force)
    _say_next(path)
    return CLEAN


def _from_answers(args: argparse.Namespace) -> int:
    from policy_lang.cli.new_ask import BrokenOff, asked, asked_name
    from policy_lang.starting.compose import composed

    try:
        path = _path(args.name if args.name is not None else asked_name(UNASKED))
        if os.path.lexists(path) and not args.force:
            raise NotWritten(f"`{path}` exists; `--force` writes over it")
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise NotWritten(f"`{path}` cannot be written: there is no directory `{os.path.dirname(path)}`")
        answers = asked()
    except BrokenOff:
        print("\npolicy new: broken off; nothing was written", file=sys.stderr)
        return 130
    write(path, composed(_policy_name(path), answers), over=args.force)
    print()
    _say_next(path)
    return CLEAN


def _path(name: str) -> str:
    if not os.path.basename(name):
        raise NotWritten(f"`{name}` names no file")
    if os.path.isdir(name):
        raise NotWritten(f"`{name}` is a directory; name a file in it")
    return name if name.endswith(SUFFIX) and os.path.basename(name) != SUFFIX else f"{name}{SUFFIX}"


def _policy_name(path: str) -> str:
    """What the policy is called: the file's name, as far as it can stand in a text."""
    name = os.path.basename(path).removesuffix(SUFFIX).encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() else " " for char in name).strip() or "agent"


def _say_next(path: str) -> None:
    file, page = shlex.quote(path), shlex.quote(path.removesuffix(SUFFIX) + ".html")
    steps = (
        (f"policy explain {file}", "what it means, in English"),
        (f"policy test {file}", "play its tests"),
        (f"policy graph {file} --format html --output {page}", "look at it"),
        (f'policy run {file} "Hello" --model openai:gpt-4.1-mini', "make a run under it"),
    )
    print(f"wrote {clean(path)}\n\nNow try:")
    wide = max(len(command) for command, _ in steps)
    for command, words in steps:
        print(f"  {clean(command):{wide}}  # {words}")
