"""``policy graph FILE``: a picture of what a run under a policy can come to, as Mermaid, SVG or a page of HTML.

Exit 0 if it was drawn, 1 if the policy has errors (shown as ``policy check`` shows them), 2 if a file cannot be read
or written.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, USAGE
from policy_lang.cli.explain import refuse
from policy_lang.cli.options import add_policy_options

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from policy_lang.graph.picture import Picture
    from policy_lang.source import Source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a policy file")
    parser.add_argument(
        "--format", choices=("mermaid", "svg", "html"), default="mermaid", help="how it is written (default: mermaid)"
    )
    parser.add_argument("--output", metavar="FILE", help="where it is written (default: the standard output)")
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    from policy_lang import check

    if args.output and os.path.exists(args.output) and os.path.samefile(args.file, args.output):
        print(f"policy graph: `{args.output}` is the policy itself; name another file", file=sys.stderr)
        return USAGE
    data, findings = check(args.file, root=args.root, params=dict(args.set))
    if data is None:
        return refuse(findings)
    from engine.core.policy import Policy
    from policy_lang.graph.draw import picture

    policy = Policy.model_validate(data)
    drawn = picture(policy)
    text = _written(args, policy, drawn)
    if args.output:
        from policy_lang.cli.writing import NotWritten, write

        try:
            write(args.output, text, over=True)
        except NotWritten as problem:
            print(f"policy graph: {problem}", file=sys.stderr)
            return USAGE
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    if drawn.unsure:
        told = f"not every state was searched ({drawn.cut}): what is marked (?) may never happen"
        print(f"policy graph: {told}", file=sys.stderr)
    return CLEAN


def _written(args: argparse.Namespace, policy: Policy, drawn: Picture) -> str:
    match args.format:
        case "svg":
            from policy_lang.graph.svg import svg

            return svg(drawn, args.file)
        case "html":
            from policy_lang.explain import sections
            from policy_lang.graph.page import page

            return page(drawn, args.file, sections(policy), _sources(args.file, policy, drawn))
        case _:
            from policy_lang.graph.mermaid import mermaid

            return mermaid(drawn, args.file)


def _sources(main: str, policy: Policy, drawn: Picture) -> list[Source]:
    """The policy's file, then the others that its rules stand in, as far as they can still be read."""
    from policy_lang.explain import sections
    from policy_lang.source import Unreadable, read

    places = [place for _, sentences in sections(policy) for _, place in sentences]
    names = [place.rpartition(":")[0] for place in places if place.rpartition(":")[2].isdecimal()]
    names += [item.origin.file for item in drawn.items() if item.origin]
    found = []
    for name in dict.fromkeys([main, *names]):
        try:
            found.append(read(name, name))
        except Unreadable:
            continue
    return found
