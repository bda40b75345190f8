"""Verdicts for all numbers, for people and as JSON. Text only; what is proved, and how, is others' business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.verify.symbolic.proving import ASSUMED, Promised, SymbolicProof
from engine.verify.traces import condense
from policy_lang.renderers.snippet import clean
from policy_lang.testing.report import Paint, plain
from policy_lang.verifying.told import wrapped

_PROVED = "proved for all numbers"
_COLOURS = {"refuted": "bad", "unknown": "strong"}
_WORDS = {"refuted": "REFUTED", "unknown": "unknown"}


def report(path: str, proof: SymbolicProof, paint: Paint = plain) -> list[str]:
    """What is proved about laws and amounts, whatever the numbers of the policy are."""
    whose = f', as agent "{proof.agent}"' if proof.agent else ""
    out = [paint(clean(f"{path}{whose}, for all numbers"), "strong")]
    laws = [law.name for law in proof.verdicts if law.result == "proved"]
    if laws:
        out += wrapped("laws", f"{paint(_PROVED, 'good')}: {' '.join(laws)}", paint)
    others = [law for law in proof.verdicts if law.result != "proved"]
    for law in others[:1] if len({law.why for law in others}) == 1 else others:
        named = " ".join(x.name for x in others) if law.why == others[-1].why else law.name
        word = paint(_WORDS[law.result], _COLOURS[law.result])
        out += wrapped("laws" if law.result == "unknown" else law.name, f"{word}: {named}: {law.why}", paint)
        out += [f"    {line}" for line in condense([step.says for step in law.trace])]
    for about in dict.fromkeys(promised.about for promised in proof.promised):
        out += _about(about, [promised for promised in proof.promised if promised.about == about], paint)
    facts = sum(map(len, proof.laws.facts))
    out += wrapped("looked at", f"{facts} facts that every step keeps, {proof.seconds:.1f} s in all", paint, "dim")
    for number, text in enumerate(ASSUMED):
        out += wrapped("" if number else "assumed", text, paint, "dim")
    return out


def _about(about: str, promised: Sequence[Promised], paint: Paint) -> list[str]:
    out: list[str] = []
    proved = [f"{p.says}{f' (reached: {p.shown})' if p.shown else ''}" for p in promised if p.result == "proved"]
    name = about
    if proved:
        out += wrapped(name, f"{paint(_PROVED, 'good')}: {'; '.join(proved)}", paint)
        name = ""
    for p in promised:
        if p.result != "proved":
            where = f"  [{p.origin}]" if p.origin else ""
            word = paint(_WORDS[p.result], _COLOURS[p.result])
            out += wrapped(name, f"{word}: {p.says}: {p.shown or p.why}{where}", paint)
            name = ""
    return out


def as_json(proof: SymbolicProof) -> dict[str, Any]:
    """The same as plain data."""
    laws = [{"name": v.name, "result": v.result, "says": v.says, "why": v.why} for v in proof.verdicts]
    promised = [
        {
            "name": p.name,
            "about": p.about,
            "result": p.result,
            "says": p.says,
            "why": p.why or p.shown,
            "origin": p.origin,
        }
        for p in proof.promised
    ]
    facts = sum(map(len, proof.laws.facts))
    return {
        "agent": proof.agent,
        "laws": laws,
        "promises": promised,
        "assumptions": list(ASSUMED),
        "effort": {"facts": facts, "seconds": round(proof.seconds, 3)},
    }


def summary(proofs: Sequence[SymbolicProof]) -> str:
    """All verdicts for all numbers in one line."""
    results = [result for proof in proofs for result in proof.results]
    parts = [
        f"{results.count(r)} {words}" for r, words in (("refuted", "refuted"), ("unknown", "unknown")) if r in results
    ]
    proved = f"{results.count('proved')} proved"
    return f"for all numbers: {', '.join((*parts, proved))}"
