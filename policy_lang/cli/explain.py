"""``policy explain FILE``: what a policy says, in English, in full, as code or as JSON. Of a journal: one decision.

Exit 0 if the policy could be read, 1 if it has errors (shown as ``policy check`` shows them), 2 if the file cannot be
read, or if there is no such code.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from policy_lang.diagnostics import Diagnostic

_DATABASE = b"SQLite format 3\0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="a policy file, the code of a finding such as P201, or a journal of runs"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--effective", action="store_true", help="the whole policy as one file, every line with its origin"
    )
    how.add_argument("--code", action="store_true", help="the Python that decides, made from this policy")
    how.add_argument(
        "--json", action="store_true", help="the policy as JSON, with its fingerprint; of a journal, its facts"
    )
    of_run = parser.add_argument_group("of a journal")
    of_run.add_argument("--run", dest="run_id", metavar="ID", help="the run (its id, or how the id begins)")
    of_run.add_argument("--step", type=int, metavar="N", help="why this step was decided so; without it, all steps")
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    from policy_lang import check
    from policy_lang.catalogue import no_such_code, page

    if args.run_id is not None or args.step is not None or _is_database(args.file):
        from policy_lang.cli import explain_journal

        return explain_journal.run(args)
    if (told := page(args.file)) is not None:
        print(told, end="")
        return CLEAN
    if not os.path.exists(args.file) and (problem := no_such_code(args.file)):
        print(f"policy explain: {problem}", file=sys.stderr)
        return USAGE
    data, findings = check(args.file, root=args.root, params=dict(args.set))
    if data is None:
        return refuse(findings)
    from engine.core.policy import Policy

    told = _told(Policy.model_validate(data), args)
    print(_plain(told) if sys.stdout.isatty() else told)
    if findings:
        from policy_lang.renderers.snippet import clean

        many = f"{len(findings)} warnings" if len(findings) > 1 else "a warning"
        print(
            f"policy explain: {many} about this policy; `policy check {clean(args.file)}` shows more", file=sys.stderr
        )
    return CLEAN


def _plain(text: str) -> str:
    """The same without signs that a terminal would act on: names of files may have such."""
    from policy_lang.renderers.snippet import clean

    return "\n".join(map(clean, text.split("\n")))


def _is_database(path: str) -> bool:
    """Does a file begin like a journal? Policies are texts, and no text begins so."""
    if not os.path.isfile(path):  # a pipe would be waited for
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except (OSError, ValueError):
        return False


def refuse(findings: list[Diagnostic]) -> int:
    from policy_lang.cli.terminal import in_full

    print(in_full(findings, sys.stderr), file=sys.stderr)
    unreadable = any(not f.primary.span.source.text and f.code in ("P401", "P402", "P403", "P404") for f in findings)
    return USAGE if unreadable else FINDINGS


def _told(policy: Policy, args: argparse.Namespace) -> str:
    if args.json:
        import json

        told = {"fingerprint": policy.fingerprint(), "policy": policy.model_dump(mode="json")}
        return json.dumps(told, indent=2, ensure_ascii=False)
    if args.code:
        from engine.core.step import compile

        return compile(policy).source.rstrip("\n")
    if args.effective:
        from policy_lang.explain_effective import effective, final_lines

        return effective(policy, final_lines(args.file, args.root))
    from policy_lang.explain import explain

    return explain(policy)
