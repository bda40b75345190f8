"""The options of every command that loads a policy."""

from __future__ import annotations

import argparse


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """``--set`` gives ``args.set``, pairs of a param's name and its value as text; ``--root`` gives ``args.root``."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", type=_setting, help="the value of a param"
    )
    parser.add_argument(
        "--root", metavar="DIR", help="where extended and imported files may lie (default: the file's directory)"
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"`{text}` is not of the form NAME=VALUE")
    return name.strip(), value
