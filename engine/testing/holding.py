"""``assert_holds``: a claim, or all that a policy promises, proved for every run; else the run that refutes it.

What is printed is what ``policy verify`` prints. The only module of the toolkit that knows the language, since claims
are written in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.claims import Claim
from engine.core.policy import Policy
from engine.verify.prove import Prover
from engine.verify.verdicts import Budget, Verdict


def assert_holds(
    policy: Policy,
    claim: str | Claim | None = None,
    *,
    budget: Budget | None = None,
    unknown: bool = False,
    vacuous: bool = True,
) -> list[Verdict]:
    """Prove a claim for every run of the policy, and for the runs of each of its agents; the verdicts, if all is well.

    ``claim``: as behind a name in the language (``"always llm_calls <= 6"``), a ``Claim``, or nothing for all claims
    of the policy and the laws. ``unknown``: what is neither proved nor refuted is well too. ``vacuous``: so is a claim
    that speaks of what never happens.

    Raises:
        AssertionError: with the table that ``policy verify`` prints, the run that refutes it folded.
        PolicyError: the claim is none.
    """
    from policy_lang.verifying.told import agents_of, report

    claims = policy.claims if claim is None else (_claim(claim),)
    verdicts: list[Verdict] = []
    wrong: list[str] = []
    for agent in ("", *agents_of(policy)):
        prover = Prover(policy.of_agent(agent) if agent else policy, budget or Budget(), agent=agent)
        proof = prover.prove(claims, laws=claim is None)
        verdicts += proof.verdicts
        if not all(_well(verdict, unknown, vacuous) for verdict in proof.verdicts):
            wrong += report(_file(policy), proof, prover.compiled, {})
    if wrong:
        raise AssertionError("\n".join(["what is claimed does not hold for every run", "", *wrong]))
    return verdicts


def _claim(claim: str | Claim) -> Claim:
    if isinstance(claim, Claim):
        return claim
    from policy_lang import loads

    (found,) = loads(f'policy "claim" lang 1\n\nverify "claimed" {claim}\n', "<claim>").claims
    return found


def _well(verdict: Verdict, unknown: bool, vacuous: bool) -> bool:
    if verdict.result == "unknown":
        return unknown
    return verdict.result == "proved" and (vacuous or not verdict.vacuous or verdict.kind != "claim")


def _file(policy: Policy) -> str:
    """The file that the policy's lines come from, or its name."""
    files: Sequence[str] = [limit.origin.file for limit in policy.limits if limit.origin]
    return files[0] if files else policy.name
