"""Verdicts for people: what is proved and for what, the run that refutes, what is not known and why.

Text only. Never a bare "ok": what was looked at, and what is taken for granted, is always said.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.verify.traces import condense
from engine.verify.verdicts import Effort, Proof, Verdict
from policy_lang.renderers.snippet import clean
from policy_lang.testing.report import Paint, plain
from policy_lang.verifying.folded import table
from policy_lang.verifying.written import Written

_WIDTH, _INDENT = 104, 16
_REFUTED, _UNKNOWN = "REFUTED", "unknown"
_FOR = {"these": "proved at these limits", "all": "proved for all limits"}
_COUNTED = (
    ("refuted", ("these", "all"), "refuted"),
    ("unknown", ("these", "all"), "unknown"),
    *(("proved", (limits,), words) for limits, words in _FOR.items()),
)
"""Result and what it is about, in the order and the words of the summary."""
_COLOURS = {"proved": "good", "refuted": "bad", "unknown": "strong"}


def report(path: str, proof: Proof, compiled: Compiled, tests: dict[str, Written], paint: Paint = plain) -> list[str]:
    """All there is to say about one policy, or one agent of it. ``tests`` by the names of verdicts."""
    whose = f', as agent "{proof.agent}"' if proof.agent else ""
    out = [paint(clean(f"{path}{whose}"), "strong")]
    out += _laws([v for v in proof.settled() if v.kind == "law"], paint)
    for verdict in proof.settled():
        if verdict.kind == "end" or (verdict.kind == "law" and verdict.result == "refuted") or verdict.kind == "claim":
            out += _one(path, verdict, compiled, tests.get(verdict.name), paint)
    out += _everywhere(proof, paint)
    for dead in proof.dead:
        out += wrapped(
            "never", f"{dead.what}{'; ' + dead.why if dead.why else ''}  [{dead.origin}]", paint, "secondary"
        )
    out += wrapped("looked at", effort_words(proof.effort), paint, "dim")
    for number, text in enumerate(proof.assumptions):
        out += wrapped("assumed" if not number else "", text, paint, "dim")
    return out


def _laws(laws: Sequence[Verdict], paint: Paint) -> list[str]:
    out: list[str] = []
    proved = [law for law in laws if law.result == "proved"]
    for limits, words in _FOR.items():
        if names := " ".join(law.name for law in proved if law.limits == limits):
            out += wrapped("laws", f"{paint(words, 'good')}: {names}", paint)
    if proved:
        vacuous = [law.name for law in proved if law.vacuous]
        if vacuous:
            out += wrapped("", f"nothing that {' '.join(vacuous)} speak of ever happens", paint)
    unknown = [law for law in laws if law.result == "unknown"]
    if unknown and all(law.why == unknown[0].why for law in unknown):
        names = " ".join(law.name for law in unknown)
        out += wrapped("laws", f"{paint(_UNKNOWN, 'strong')}: {names}: {_why(unknown[0])}", paint)
    else:
        for law in unknown:
            out += wrapped(law.name, f"{paint(_UNKNOWN, 'strong')}: {law.says}: {_why(law)}", paint)
    return out


def _everywhere(proof: Proof, paint: Paint) -> list[str]:
    """What holds whatever the limits are, as far as it was not said already; a law broken elsewhere with its run."""
    settled, out = proof.settled(), []
    proved = [v for v in proof.everywhere if v.result == "proved" and v.limits == "all" and v not in settled]
    if names := " ".join("and every run ends" if v.kind == "end" else v.name for v in proved if v.kind != "claim"):
        out += wrapped("all limits", f"{paint(_FOR['all'], 'good')}: {names}", paint)
    for v in proved:
        if v.kind == "claim":
            out += wrapped("all limits", f'{paint(_FOR["all"], "good")}: "{v.name}": {v.says}', paint)
    others = [v for v in proof.everywhere if v.result != "proved"]
    for v in others[:1] if len({v.why for v in others}) == 1 else others:
        word = paint({"refuted": _REFUTED, "unknown": _UNKNOWN}[v.result], _COLOURS[v.result])
        out += wrapped("all limits", f"{word}: {v.says}: {v.why}", paint)
        out += [f"    {line}" for line in condense([step.says for step in v.trace])]
    return out


def _one(path: str, v: Verdict, compiled: Compiled, test: Written | None, paint: Paint) -> list[str]:
    name = {"end": "the end", "law": v.name, "claim": f'"{v.name}"'}[v.kind]
    word = {"proved": _FOR[v.limits], "refuted": _REFUTED, "unknown": _UNKNOWN}[v.result]
    why = f": {_why(v)}" if v.why else ""
    vacuous = f" (vacuous: {v.vacuous})" if v.vacuous else ""
    where = f"  [{v.origin}]" if v.origin and v.result != "proved" else ""
    out = wrapped(name, f"{paint(word, _COLOURS[v.result])}: {v.says}{why}{vacuous}{where}", paint)
    if v.played:
        head, *rows = table(compiled, v.played, path)
        out += ["", f"      {paint(head, 'dim')}", *(f"      {row}" for row in rows), ""]
    elif v.trace and v.result == "unknown":
        out += ["", *(f"    {line}" for line in condense([step.says for step in v.trace])), ""]
    if test is not None and test.text:
        out += ["      as a test:", "", *(f"      {line}".rstrip() for line in test.text.splitlines()), ""]
    elif test is not None:
        out += [f"      no test of it: {test.why_not}", ""]
    return out


def _why(verdict: Verdict) -> str:
    """Why it is not known, with the way out where an option is one."""
    if verdict.why.startswith("stopped after "):
        return f"{verdict.why}; `--max-states` allows more"
    return f"{verdict.why}; `--timeout` allows more" if verdict.why.endswith("time was over") else verdict.why


def wrapped(name: str, text: str, paint: Paint, role: str = "") -> list[str]:
    """A line, and what does not fit into it below."""
    head = f"  {clean(name):<12}  "
    if len(head) > _INDENT:
        return [head.rstrip(), *wrapped("", text, paint, role)]
    lines = textwrap.wrap(clean_but_colours(text), _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
    first, *rest = (paint(line, role) if role else line for line in lines)
    return [head + first, *(" " * _INDENT + line for line in rest)]


def clean_but_colours(text: str) -> str:
    """What a policy says in a message must not move the cursor; our own colours may stay."""
    return "\x1b".join(clean(part) for part in text.split("\x1b"))


def effort_words(effort: Effort) -> str:
    """``5,990 states, 28,794 transitions, depth 61, 0.3 s``."""
    found = f"{effort.states:,} states, {effort.transitions:,} transitions, depth {effort.depth}, "
    return found + f"{effort.seconds:.1f} s in all"


def summary(proofs: Sequence[Proof], files: int, wrong: int) -> str:
    """All verdicts in one line. ``wrong`` of the files have errors."""
    verdicts = [v for proof in proofs for v in proof.settled()]
    parts = []
    for result, limits, words in _COUNTED:
        many = sum(v.result == result and v.limits in limits for v in verdicts)
        if many:
            parts.append(f"{many} {words}")
    vacuous = sum(bool(v.vacuous) for v in verdicts if v.kind == "claim")
    more = f" ({vacuous} vacuous)" if vacuous else ""
    if wrong:
        parts.append(f"{_files(wrong)} with errors" if wrong < files else "errors in it" if files == 1 else "errors")
    return f"{_files(files)}: {', '.join(parts)}{more}"


def _files(many: int) -> str:
    return f"{many} file" if many == 1 else f"{many} files"


def agents_of(policy: Policy) -> list[str]:
    """The agents that the policy has rules for."""
    return [rules.name for rules in policy.agent]


def lines_of(policy: Policy, agent: str) -> frozenset[str] | None:
    """The lines that an agent's block says itself; ``None`` for the policy, which says all of its lines."""
    if not agent:
        return None
    (rules,) = [rules for rules in policy.agent if rules.name == agent]
    return frozenset(str(origin) for origin in (*(x.origin for x in rules.limits), *(x.origin for x in rules.failures)))
