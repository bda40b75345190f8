"""``policy verify --symbolic``, ``--write-proof``, ``--check-proof``: proofs for all numbers, and their certificates.

A certificate stands beside its policy, as ``NAME.policy.proof.json``.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.terminal import in_colour

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.verify.symbolic.proving import SymbolicProof

_LARGEST = 20_000_000
"""Bytes of a certificate that are read; the largest that a policy has had were some hundred thousand."""


def add_symbolic_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--symbolic",
        action="store_true",
        help="prove laws, and what is promised of tokens, money and time, for all numbers (needs the extra `symbolic`)",
    )
    parser.add_argument(
        "--write-proof",
        action="store_true",
        help="with --symbolic: store the proof beside the file, to be checked again",
    )
    parser.add_argument(
        "--check-proof",
        action="store_true",
        help="only check the proof that is stored beside the file; nothing is searched",
    )


def wrong_options(args: argparse.Namespace) -> str:
    """Why these options do not go together; empty if they do."""
    if args.write_proof and not args.symbolic:
        return "--write-proof writes what --symbolic proves: give both"
    if args.check_proof and (args.symbolic or args.write_test or args.claim or args.all_limits):
        return "--check-proof only checks what is stored: give it alone"
    return ""


def ready() -> str:
    """Why nothing can be proved for all numbers here; empty if it can."""
    from engine.verify.symbolic.solver import NoSolver, z3

    try:
        z3()
    except NoSolver as missing:
        return str(missing)
    return ""


def prove(path: str, policy: Policy, seconds: float, args: argparse.Namespace) -> list[SymbolicProof]:
    """Prove, print unless one document is wanted, and store what was proved if asked to."""
    from engine.verify.symbolic.certificate import subjects
    from engine.verify.symbolic.proving import prove_for_all_numbers
    from engine.verify.verdicts import Budget
    from policy_lang.cli.searching import Progress
    from policy_lang.testing.report import coloured, plain
    from policy_lang.verifying.symbolic import report

    proofs: list[SymbolicProof] = []
    known = subjects(policy)
    for agent, subject in known.items():
        told = Progress(path)
        budget = Budget(args.max_states, seconds / len(known), args.max_open)
        proofs.append(prove_for_all_numbers(subject, budget, agent=agent, progress=told))
        told.over()
        if not args.json:
            print("\n".join(report(path, proofs[-1], coloured if in_colour() else plain)), end="\n\n", flush=True)
    if args.write_proof:
        _store(path, policy, proofs, quiet=args.json)
    return proofs


def _store(path: str, policy: Policy, proofs: list[SymbolicProof], *, quiet: bool) -> None:
    from engine.verify.symbolic.certificate import SUFFIX, NoCertificate, written
    from policy_lang.cli.writing import NotWritten, write
    from policy_lang.renderers.snippet import clean

    place = f"{path}{SUFFIX}"
    try:
        write(place, written(policy, proofs), over=True)
    except NoCertificate as problem:
        print(clean(f"policy verify: {path}: {problem}"), file=sys.stderr)
        return
    except NotWritten as problem:
        print(clean(f"policy verify: {problem}"), file=sys.stderr)
        raise SystemExit(USAGE) from None
    if not quiet:
        print(clean(f"{place}: the proof was written"))


def check(path: str, policy: Policy, seconds: float) -> tuple[int, str]:
    """Check the certificate beside a policy: an exit code, and a sentence."""
    from engine.verify.symbolic.certificate import SUFFIX, NoCertificate, checked, until

    place = f"{path}{SUFFIX}"
    text = _read(place)
    if text is None:
        return USAGE, f"{place}: there is no proof to check; `policy verify --symbolic --write-proof {path}` writes one"
    try:
        total = checked(text, policy, until(seconds))
    except NoCertificate as problem:
        return FINDINGS, f"{place}: refused: {problem}"
    return CLEAN, f"{place}: holds: {total} laws and promises, proved for all numbers"


def _read(place: str) -> str | None:
    try:
        if not os.path.isfile(place) or os.path.getsize(place) > _LARGEST:
            return None
        with open(place, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None
