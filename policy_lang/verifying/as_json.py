"""Verdicts as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.core.decisions import encode_decision
from engine.core.events import encode_event
from engine.verify.symbolic.proving import SymbolicProof
from engine.verify.verdicts import Effort, Proof, Verdict
from policy_lang.diagnostics import Diagnostic
from policy_lang.verifying import symbolic
from policy_lang.verifying.written import Written


class Verified(NamedTuple):
    """One file: its proofs, the policy's own first, and the tests made of refutations; or its errors."""

    path: str
    proofs: list[Proof]
    tests: list[dict[str, Written]]
    errors: list[Diagnostic]
    symbolic: tuple[SymbolicProof, ...] = ()
    """Proofs for all numbers, where they were asked for."""


def document(files: Sequence[Verified]) -> str:
    """All files with all verdicts."""
    return json.dumps({"files": [_file(file) for file in files]}, indent=2, ensure_ascii=False)


def _file(file: Verified) -> dict[str, Any]:
    errors = [{"code": e.code, "message": e.message, "line": e.primary.span.line} for e in file.errors]
    proofs = [_proof(proof, tests) for proof, tests in zip(file.proofs, file.tests, strict=True)]
    told = {"file": file.path, "errors": errors, "proofs": proofs}
    return {**told, "all_numbers": [symbolic.as_json(proof) for proof in file.symbolic]} if file.symbolic else told


def _proof(proof: Proof, tests: dict[str, Written]) -> dict[str, Any]:
    return {
        "agent": proof.agent,
        "verdicts": [_verdict(verdict, tests.get(verdict.name)) for verdict in proof.verdicts],
        "all_limits": [_verdict(verdict, None) for verdict in proof.everywhere],
        "assumptions": list(proof.assumptions),
        "never": [{"what": d.what, "origin": d.origin, "why": d.why} for d in proof.dead],
        "effort": _effort(proof.effort),
    }


def _verdict(v: Verdict, test: Written | None) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": v.kind, "name": v.name, "result": v.result, "says": v.says}
    told |= {name: text for name, text in (("why", v.why), ("vacuous", v.vacuous)) if text}
    if v.origin:
        told["origin"] = str(v.origin)
    if v.trace:
        told["found"] = [{"event": s.event, "fields": s.fields, "rule": s.rule, "origin": s.origin} for s in v.trace]
    if v.played:
        told["run"] = [
            {"event": json.loads(encode_event(s.event)), "decision": json.loads(encode_decision(s.decision))}
            for s in v.played
        ]
    if test is not None:
        told["test"] = test.text or None
    return told | {"effort": _effort(v.effort)}


def _effort(effort: Effort) -> dict[str, Any]:
    return {
        "states": effort.states,
        "transitions": effort.transitions,
        "depth": effort.depth,
        "seconds": round(effort.seconds, 3),
    }
