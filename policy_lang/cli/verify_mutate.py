"""``policy verify --mutate``: how many faults of a policy's machine its laws and claims would notice."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from engine.core.policy import Policy
from engine.verify.verdicts import Budget
from engine.verify.weakened import Judged, Weakened, weakened
from policy_lang import check
from policy_lang.cli import CLEAN, USAGE
from policy_lang.cli.searching import Progress
from policy_lang.cli.terminal import in_full
from policy_lang.renderers.snippet import clean

_UNKNOWN = 3
"""Exit code: not every fault was tried."""


def mutated(paths: list[str], args: argparse.Namespace) -> int:
    """Measure each file, and print what comes of it. The exit code is 3 where not every fault was tried."""
    if not paths:
        print(f"policy verify: no *.policy files in {', '.join(args.files or ['.'])}", file=sys.stderr)
        return USAGE
    documents: list[dict[str, Any]] = []
    code = CLEAN
    for path in paths:
        found = _one(path, args)
        if found is None:
            code = USAGE
            continue
        documents.append(_data(path, found))
        if not args.json:
            print("\n".join(clean(line) for line in _report(path, found)), end="\n\n", flush=True)
        if len(found.judged) < found.there or found.why:
            code = code or _UNKNOWN
    if args.json:
        print(json.dumps({"version": 1, "files": documents}, indent=2))
    return code


def _one(path: str, args: argparse.Namespace) -> Weakened | None:
    data, findings = check(path, root=args.root, params=dict(args.set))
    if data is None:
        if not args.json:
            print(in_full(findings), end="\n\n")
        return None
    policy = Policy.model_validate(data)
    claims = [claim for claim in policy.claims if args.claim.casefold() in claim.name.casefold()]
    told = Progress(path)
    try:
        budget = Budget(args.max_states, args.timeout, args.max_open)
        return weakened(policy, claims, budget, lambda n, of: told.tell(f"fault {n + 1} of {of}"))
    finally:
        told.over()


def _report(path: str, found: Weakened) -> list[str]:
    if found.why:
        return [f"{path}: no fault was tried: {found.why}"]
    of = f"{found.noticed} of {found.counted} faults are noticed by a law or a claim"
    same = sum(one.fate == "same" for one in found.judged)
    out = [f"{path}: {of}; {same} more make no difference"]
    by: dict[str, int] = {}
    for one in found.judged:
        if one.fate == "noticed":
            by[one.by] = by.get(one.by, 0) + 1
    out += [f"  {number:>5}  {name}" for name, number in sorted(by.items(), key=lambda item: -item[1])]
    survivors = [one for one in found.judged if one.fate == "survived"]
    own = [one for one in survivors if not one.fault.origin.startswith("default: ")]
    out += [f"  unnoticed  {one.fault.origin}: {_words(one)}" for one in own]
    if len(survivors) > len(own):
        out.append(f"  unnoticed  {len(survivors) - len(own)} faults in what defaults do; `--json` has them all")
    if found.unfit:
        out.append(f"  left out, for they do not hold as it is: {', '.join(found.unfit)}")
    left = found.there - len(found.judged)
    if left:
        out.append(f"  {left} of {found.there} faults were not tried: the time was over; `--timeout` gives it more")
    return out


def _words(one: Judged) -> str:
    return f"`{one.fault.rule}` {one.fault.what}"


def _data(path: str, found: Weakened) -> dict[str, Any]:
    return {
        "file": path,
        "noticed": found.noticed,
        "counted": found.counted,
        "tried": len(found.judged),
        "faults": found.there,
        "why": found.why,
        "unfit": list(found.unfit),
        "judged": [
            {"rule": j.fault.rule, "what": j.fault.what, "origin": j.fault.origin, "fate": j.fate, "by": j.by}
            for j in found.judged
        ],
    }
