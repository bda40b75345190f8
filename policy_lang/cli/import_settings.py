"""``policy import``: a file of limits as another framework uses them, to a policy.

The policy goes to the standard output or to a file; what could not be carried over is told on the standard error.
Exit 0 if every limit was carried over, 1 if one was not, 2 if no policy can be made of the file, or it cannot be
read or written.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.renderers.snippet import clean

if TYPE_CHECKING:
    from policy_lang.importing import Imported
    from policy_lang.importing.framework import Entry
    from policy_lang.importing.values import Place, Unusable

STDIN = "-"
SHOWN = 8
"""Keys without a limit that are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from policy_lang.importing.frameworks import all_frameworks

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = "\n".join(f"  {framework.name:<17}{framework.title}" for framework in all_frameworks())
    parser.epilog = (
        f"names for --from:\n{known}\n\n"
        "exit codes: 0 every limit is in the policy, 1 some are not (named on the standard error),\n"
        "            2 no policy can be made of the file, or it cannot be read or written"
    )
    parser.add_argument("settings", metavar="SETTINGS", help="a JSON, YAML or TOML file, or `-`, the standard input")
    parser.add_argument(
        "--from",
        dest="framework",
        default="",
        metavar="NAME",
        help="whose settings it has (default: told by its keys)",
    )
    parser.add_argument("--output", metavar="FILE", help="where to write the policy (default: the standard output)")
    parser.add_argument("--force", action="store_true", help="write over a file that exists")
    parser.add_argument("--name", metavar="NAME", help="the policy's name (default: that of the file)")
    parser.add_argument("--json", action="store_true", help="print one JSON document: the policy and the whole account")


def run(args: argparse.Namespace) -> int:
    from policy_lang.importing import Unusable, imported
    from policy_lang.source import Unreadable

    file = "<stdin>" if args.settings == STDIN else args.settings
    try:
        name = _name(args)
        made = imported(_data(args.settings), file, name, args.framework)
    except (Unreadable, ValueError) as problem:
        print(f"policy import: {clean(str(problem))}", file=sys.stderr)
        return USAGE
    except Unusable as unusable:
        _refuse(unusable, file, args.json)
        return USAGE
    if args.output and not _written(args, made.text):
        return USAGE
    if args.json:
        _print(_document(args, made, name))
    else:
        if not args.output:
            _print(made.text)
        for line in _report(made, file):
            print(line, file=sys.stderr)
    return FINDINGS if made.lost else CLEAN


def _name(args: argparse.Namespace) -> str:
    if args.name is not None:
        if not args.name.strip() or not args.name.isprintable():
            raise ValueError("`--name` needs a name of visible characters")
        return str(args.name)
    stem = os.path.basename(args.settings).partition(".")[0] if args.settings != STDIN else ""
    return "".join(char if char.isprintable() else "-" for char in stem).strip() or "imported"


def _data(path: str) -> bytes:
    """The bytes of the file, of a large one as many as are needed to refuse it. Raises ``Unreadable``."""
    from policy_lang.source import MAX_BYTES, Unreadable, contents

    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        return contents(path, path)
    except Unreadable as problem:
        message = problem.message.replace("not a policy file", "not a file of settings")
        raise Unreadable(problem.code, message) from None


def _written(args: argparse.Namespace, text: str) -> bool:
    from policy_lang.cli.writing import NotWritten, write

    try:
        if args.settings != STDIN and os.path.realpath(args.output) == os.path.realpath(args.settings):
            raise NotWritten(f"`{args.output}` is the file of settings itself")
        write(args.output, text, over=args.force)
    except NotWritten as problem:
        print(f"policy import: {clean(str(problem))}", file=sys.stderr)
        return False
    if not args.json:
        print(f"wrote {clean(args.output)}", flush=True)
    return True


def _print(text: str) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()


# ---- what is told


def _report(made: Imported, file: str) -> list[str]:
    from policy_lang.names import listed

    lines = [f"{_place(file, one.at)} `{clean(one.path)}` is not carried over: {one.said}" for one in made.lost]
    if made.beside:
        keys = [f"`{key}`" for key in dict.fromkeys(clean(one.path) for one in made.beside)]
        more = [f"{len(keys) - SHOWN} other keys"] if len(keys) > SHOWN + 1 else keys[SHOWN:]
        lines.append(f"policy import: no limits: {listed([*keys[:SHOWN], *more], 'and')}")
    for finding in made.findings:
        line = finding.primary.span.line
        lines.append(f"policy import: `policy check` says of line {line}: {finding.message} ({finding.code})")
    carried = len({one.path for one in made.carried})
    many = f"{carried} setting{'s' if carried != 1 else ''} carried over"
    lines.append(f"policy import: read as {made.framework.title}: {many}, {len(made.lost) or 'none'} not")
    return lines


def _refuse(unusable: Unusable, file: str, as_json: bool) -> None:
    import json

    if as_json:
        problems = [{**_at(one.at), "message": one.message, "help": one.help} for one in unusable.problems]
        _print(json.dumps({"problems": problems}, indent=2, ensure_ascii=True) + "\n")
        return
    for one in unusable.problems:
        print(f"{_place(file, one.at)} {one.message}", file=sys.stderr)
        if one.help:
            print(f"  = help: {one.help}", file=sys.stderr)


def _place(file: str, at: Place) -> str:

    column = f":{at.column}" if at.column else ""
    return f"{clean(file)}:{f'{at.line}{column}:' if at.line else ''}"


def _document(args: argparse.Namespace, made: Imported, name: str) -> str:
    import json

    document = {
        "from": made.framework.name,
        "title": made.framework.title,
        "version": made.framework.version,
        "name": name,
        "output": args.output,
        "policy": made.text,
        "carried": [_entry(one, "policy") for one in made.carried],
        "lost": [_entry(one, "reason") for one in made.lost],
        "no_limits": [_entry(one, "reason") for one in made.beside],
        "findings": [
            {"code": one.code, "severity": one.severity, "line": one.primary.span.line, "message": one.message}
            for one in made.findings
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _entry(entry: Entry, what: str) -> dict[str, Any]:
    return {"key": entry.path, **_at(entry.at), "value": entry.shown, what: entry.said}


def _at(at: Place) -> dict[str, int | None]:
    return {"line": at.line or None, "column": at.column or None}
