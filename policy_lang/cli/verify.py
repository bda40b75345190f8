"""``policy verify``: prove what policy files claim, and the laws, for every run; or show a run that refutes it.

Exit 0 if everything is proved, 1 if something is refuted, 2 if a file has errors or cannot be read, or the command was
wrong, 3 if something is not known. ``--fail-level`` moves the line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.searching import Progress, add_search_options
from policy_lang.cli.terminal import in_colour, in_full
from policy_lang.cli.verify_symbolic import add_symbolic_options, ready, wrong_options
from policy_lang.cli.verify_symbolic import check as check_proof
from policy_lang.cli.verify_symbolic import prove as prove_symbolically
from policy_lang.renderers.snippet import clean
from policy_lang.walking import policy_files

if TYPE_CHECKING:
    from engine.core.claims import Claim
    from engine.core.policy import Policy
    from engine.verify.prove import Prover
    from engine.verify.verdicts import Proof
    from policy_lang.diagnostics import Diagnostic
    from policy_lang.verifying.as_json import Verified
    from policy_lang.verifying.written import Testing, Written

UNKNOWN = 3
"""Exit code: something is not known."""

_LEAST = 5.0
"""Seconds for all limits, where the search at the policy's own has used up its time."""

LEVELS = ("refuted", "unknown", "vacuous")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "exit codes: 0 everything is proved, 1 something is refuted (or vacuous, with --fail-level vacuous),\n"
        "            2 a file has errors or cannot be read, or a wrong command line, 3 something is not known"
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a policy file, or a directory to search for *.policy (default: the current one)",
    )
    parser.add_argument(
        "-k",
        "--claim",
        metavar="NAME",
        default="",
        help="only claims whose name contains this, in capitals or not; `*` and `?` stand for other signs",
    )
    add_search_options(parser)
    parser.add_argument(
        "--all-limits",
        action="store_true",
        help="prove the laws for all limits of this policy's shape too (by itself where its own are too many states)",
    )
    add_symbolic_options(parser)
    parser.add_argument(
        "--mutate",
        action="store_true",
        help="prove nothing; tell which faults of the policy's machine the laws and claims would notice",
    )
    parser.add_argument("--write-test", action="store_true", help="append a test to the file for each refutation, once")
    parser.add_argument(
        "--fail-level",
        choices=LEVELS,
        default="unknown",
        help="the mildest verdict that makes the exit code other than 0 (default: unknown)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    named = args.files or ["."]
    if args.mutate:
        from policy_lang.cli.verify_mutate import mutated

        return mutated(list(_files(named)), args)
    problem = wrong_options(args) or (ready() if args.symbolic or args.check_proof else "")
    if problem:
        print(f"policy verify: {problem}", file=sys.stderr)
        return USAGE
    if args.check_proof:
        return _check_proofs(named, args)
    done = [_file(path, args) for path in _files(named)]
    if not done:
        print(f"policy verify: no *.policy files in {', '.join(named)}", file=sys.stderr)
        return USAGE
    proofs = [proof for file in done for proof in file.proofs]
    nothing = bool(args.claim) and not any(proof.verdicts for proof in proofs)
    if args.json:
        from policy_lang.verifying.as_json import document

        print(document(done))
    elif not nothing:
        from policy_lang.verifying.told import summary

        print(summary(proofs, len(done), sum(bool(file.errors) for file in done)))
        everywhere = [proof for file in done for proof in file.symbolic]
        if everywhere:
            from policy_lang.verifying.symbolic import summary as of_all_numbers

            print(of_all_numbers(everywhere))
    if any(file.errors for file in done):
        return USAGE
    if nothing:
        print(f"policy verify: no claim is called `{args.claim}`", file=sys.stderr)
        return USAGE
    results = {result for file in done for proof in file.symbolic for result in proof.results}
    if "refuted" in results:
        return FINDINGS
    code = _code(proofs, args.fail_level, asked=args.all_limits)
    return UNKNOWN if code == CLEAN and "unknown" in results and args.fail_level != "refuted" else code


def _check_proofs(named: list[str], args: argparse.Namespace) -> int:
    """Check what is stored beside each file, and say of each in one line what came of it."""
    told = []
    for path in _files(named):
        data = _loaded(path, args)
        code, words = (USAGE, "") if data is None else check_proof(path, data, args.timeout)
        told.append((path, code, words))
        if words and not args.json:
            print(clean(words), file=sys.stderr if code else sys.stdout)
    if args.json:
        files = [{"file": path, "holds": code == CLEAN, "says": words} for path, code, words in told]
        print(json.dumps({"files": files}, indent=2, ensure_ascii=False))
    if not told:
        print(f"policy verify: no *.policy files in {', '.join(named)}", file=sys.stderr)
    return max((code for _, code, _ in told), default=USAGE)


def _code(proofs: list[Proof], level: str, *, asked: bool) -> int:
    """``asked``: what is not known for all limits counts too, for that was the question."""
    verdicts = [verdict for proof in proofs for verdict in (*proof.settled(), *(proof.everywhere if asked else ()))]
    results = {verdict.result for verdict in verdicts} | {v.result for p in proofs for v in p.everywhere} & {"refuted"}
    if "refuted" in results:
        return FINDINGS
    if level == "vacuous" and any(v.vacuous for v in verdicts if v.kind == "claim"):
        return FINDINGS
    return UNKNOWN if "unknown" in results and level != "refuted" else CLEAN


def _files(paths: list[str]) -> Iterator[str]:
    """The files named, and those found in the directories named, in an order that does not depend on the disk."""
    for path in paths:
        if os.path.isdir(path):
            yield from map(os.path.normpath, policy_files(path))
        else:
            yield path


def _file(path: str, args: argparse.Namespace) -> Verified:
    """Verify one file and, unless one document is wanted, print what comes of it."""
    from policy_lang.verifying.as_json import Verified

    errors: list[Diagnostic] = []
    policy = _loaded(path, args, errors)
    return Verified(path, [], [], errors) if policy is None else _verified(path, policy, args)


def _loaded(path: str, args: argparse.Namespace, errors: list[Diagnostic] | None = None) -> Policy | None:
    """The policy of a file; ``None`` if it has errors, which are shown unless one document is wanted."""
    from engine.core.policy import Policy
    from policy_lang import check

    data, findings = check(path, root=args.root, params=dict(args.set))
    if data is not None:
        return Policy.model_validate(data)

    if errors is not None:
        errors += [finding for finding in findings if finding.is_error]
    if not args.json:
        print(in_full(findings), end="\n\n")
    return None


def _verified(path: str, policy: Policy, args: argparse.Namespace) -> Verified:
    from engine.core.machine.plan import plans_of
    from engine.core.step import compile
    from engine.verify.all_limits import for_all_limits
    from engine.verify.prove import Prover
    from engine.verify.verdicts import Budget
    from policy_lang.verifying.as_json import Verified
    from policy_lang.verifying.told import agents_of, lines_of
    from policy_lang.verifying.written import Testing

    until = time.monotonic() + args.timeout
    claims = [claim for claim in policy.claims if _wanted(claim.name, args.claim)]
    done = Verified(path, [], [], [])
    if args.claim and not claims:
        return done
    testing = Testing(path, compile(policy), root=args.root, params=dict(args.set))
    for agent in ("", *agents_of(policy)):
        told = Progress(path)
        subject = policy.of_agent(agent) if agent else policy
        budget = Budget(args.max_states, max(0.0, until - time.monotonic()), args.max_open)
        above = plans_of(policy) if agent else ()
        prover = Prover(subject, budget, agent=agent, lines=lines_of(policy, agent), above=above, progress=told)
        proof = prover.prove(claims, laws=not args.claim)
        if args.all_limits or (not args.claim and prover.cut):
            budget = replace(budget, seconds=max(0.0, until - time.monotonic()) or _LEAST)
            everywhere = for_all_limits(subject, budget, laws=not args.claim, claims=claims, progress=told)
            proof = replace(proof, everywhere=everywhere)
        told.over()
        tests = {
            v.name: testing.of(v, agent, prover.compiled, _named(claims, v.name))
            for v in proof.verdicts
            if v.result == "refuted" and v.played
        }
        done.proofs.append(proof)
        done.tests.append(tests)
        if not args.json:
            _print(path, proof, prover, tests)
    if args.symbolic and not args.claim:
        left = max(_LEAST, until - time.monotonic())
        done = done._replace(symbolic=tuple(prove_symbolically(path, policy, left, args)))
    if args.write_test:
        _write(path, testing, [test for tests in done.tests for test in tests.values()], quiet=args.json)
    return done


def _named(claims: list[Claim], name: str) -> Claim | None:
    return next((claim for claim in claims if claim.name == name), None)


def _wanted(name: str, pattern: str) -> bool:
    pattern, name = pattern.casefold(), name.casefold()
    return pattern in name or (any(sign in pattern for sign in "*?") and fnmatchcase(name, f"*{pattern}*"))


def _print(path: str, proof: Proof, prover: Prover, tests: dict[str, Written]) -> None:
    from policy_lang.testing.report import coloured, plain
    from policy_lang.verifying.told import report

    paint = coloured if in_colour() else plain
    print("\n".join(report(path, proof, prover.compiled, tests, paint)), end="\n\n", flush=True)


def _write(path: str, testing: Testing, tests: list[Written], *, quiet: bool) -> None:
    from policy_lang.source import Unreadable
    from policy_lang.stored import NotWritten

    try:
        written = testing.append(tests)
    except (NotWritten, Unreadable) as problem:
        print(f"policy verify: {problem}", file=sys.stderr)
        raise SystemExit(USAGE) from None
    if not quiet:
        for test in tests:
            if test.text:
                done = "was added" if test.title in written else "is there already"
                print(clean(f'{path}: the test "{test.title}" {done}'))
