"""A proof as a file: what was found once, so that anybody can check it again without searching.

The facts that every step keeps are plain JSON (``Fact.plain``); to check them is to ask of each phase whether some step
breaks one, which takes no guessing. A certificate says which policy it is about, and which rules: where either has
changed it is stale. Nothing is believed: a fact that is not kept is refused, whoever wrote it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.core.machine.build import build
from engine.core.machine.machine import Machine
from engine.core.policy import Policy
from engine.verify.symbolic.encoding import Encoding
from engine.verify.symbolic.facts import Fact
from engine.verify.symbolic.laws import law_names, recheck, shapes
from engine.verify.symbolic.proving import SymbolicProof, promises
from engine.verify.symbolic.solver import OutOfTime, version

FORMAT = 1
SUFFIX = ".proof.json"

Made = Callable[[Policy], Machine]


class NoCertificate(Exception):
    """Why a text is no certificate, or not one of this policy: a sentence without the file's name."""


def subjects(policy: Policy) -> dict[str, Policy]:
    """The policy, and below it the runs of each agent that it has rules for."""
    return {"": policy} | {rules.name: policy.of_agent(rules.name) for rules in policy.agent}


def rules_fingerprint(encodings: Sequence[Encoding]) -> str:
    """Of everything that can happen in a run, and of what the laws look at."""
    digest = hashlib.sha256()
    for encoding in encodings:
        for r in encoding.reactions:
            digest.update(repr((r.event, r.phase, r.rule.id, r.when, sorted(r.after.items()), r.broken)).encode())
        digest.update(repr([(c.law, c.seen, c.broken) for c in encoding.laws.checks]).encode())
    return digest.hexdigest()


def written(policy: Policy, proofs: Sequence[SymbolicProof], made: Made = build) -> str:
    """The certificate of a policy that is proved. Raises ``NoCertificate`` if it is not."""
    if not all(proof.proved for proof in proofs):
        raise NoCertificate("not everything is proved, so that there is nothing to write down")
    known = subjects(policy)
    body = {
        "format": FORMAT,
        "policy": policy.fingerprint(),
        "solver": version(),
        "proofs": [
            {
                "agent": proof.agent,
                "rules": rules_fingerprint(shapes(known[proof.agent], made)),
                "laws": [verdict.name for verdict in proof.laws.verdicts],
                "promises": [[promised.name, promised.about] for promised in proof.promised],
                "facts": [[fact.plain() for fact in facts] for facts in proof.laws.facts],
            }
            for proof in proofs
        ],
    }
    return json.dumps({**body, "digest": _digest(body)}, indent=1, ensure_ascii=False) + "\n"


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def checked(text: str, policy: Policy, until: float, made: Made = build) -> int:
    """Check a certificate of this policy; returns how many laws and promises it proves. Raises ``NoCertificate``."""
    document = _read(text)
    if document["policy"] != policy.fingerprint():
        raise NoCertificate("it is stale: the policy has changed since; prove it again and write a new one")
    known = subjects(policy)
    proofs = document["proofs"]
    if [proof["agent"] for proof in proofs] != list(known):
        raise NoCertificate("it is not about the same agents as the policy")
    total = 0
    for proof in proofs:
        total += _one(proof, known[proof["agent"]], until, made)
    return total


def _one(proof: Mapping[str, Any], policy: Policy, until: float, made: Made) -> int:
    encodings = shapes(policy, made)
    if proof["rules"] != rules_fingerprint(encodings):
        raise NoCertificate("it is stale: the rules of the machine have changed since; prove the policy again")
    try:
        facts = [[Fact.read(fact) for fact in shape] for shape in proof["facts"]]
        wrong = recheck(encodings, facts, until)
        promised = promises(policy, until, made, tree=not proof["agent"])
    except ValueError as problem:
        raise NoCertificate(str(problem)) from None
    except OutOfTime as over:
        raise NoCertificate(f"it could not be checked: {over}") from None
    if wrong:
        raise NoCertificate(f"it proves nothing: {wrong}")
    if proof["laws"] != law_names(policy):
        raise NoCertificate("it is not about the laws of this policy")
    if [[p.name, p.about] for p in promised] != proof["promises"]:
        raise NoCertificate("it is not about what the policy promises of its amounts")
    broken = next((p for p in promised if p.result != "proved"), None)
    if broken is not None:
        raise NoCertificate(f"it is not so for {broken.about}: {broken.says}{_because(broken.shown or broken.why)}")
    return len(proof["laws"]) + len(promised)


def _because(why: str) -> str:
    return f" ({why})" if why else ""


def _read(text: str) -> dict[str, Any]:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise NoCertificate("it is no JSON") from None
    shaped = isinstance(document, dict) and set(document) == {"format", "policy", "solver", "proofs", "digest"}
    if not shaped or not isinstance(document["proofs"], list):
        raise NoCertificate("it is no certificate of a proof")
    if document["format"] != FORMAT:
        raise NoCertificate(f"its format is {document['format']}; this version reads format {FORMAT}")
    body = {key: value for key, value in document.items() if key != "digest"}
    if document["digest"] != _digest(body):
        raise NoCertificate("it was changed after it was written: its digest is another one")
    for proof in document["proofs"]:
        if not isinstance(proof, dict) or set(proof) != {"agent", "rules", "laws", "promises", "facts"}:
            raise NoCertificate("it is no certificate of a proof")
        if not isinstance(proof["facts"], list) or not all(isinstance(shape, list) for shape in proof["facts"]):
            raise NoCertificate("it is no certificate of a proof")
    found: dict[str, Any] = document
    return found


def until(seconds: float) -> float:
    """The moment by which all must be checked."""
    return time.perf_counter() + seconds
