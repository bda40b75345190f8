"""Claims for Hypothesis to draw: of every kind, with small numbers, about what a search knows and what it does not."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.core.claims import Always, AtMost, Claim, Compare, Fact, Facts, LastIs, Never, PhaseIs, Within
from engine.core.vocabulary import COUNTED, DECISIONS, DEEDS, PHASES

_SIGNS = ("<=", ">=", "<", ">", "=", "!=")


def _facts() -> st.SearchStrategy[Fact]:
    counted = st.sampled_from(COUNTED[:5])
    compared = st.builds(Compare, resource=counted, op=st.sampled_from(_SIGNS), amount=st.integers(0, 6))
    amounts = st.builds(
        Compare, resource=st.sampled_from(COUNTED), op=st.sampled_from(_SIGNS), amount=st.integers(0, 90)
    )
    phases = st.builds(PhaseIs, phase=st.sampled_from(PHASES), negated=st.booleans())
    lasts = st.builds(LastIs, decision=st.sampled_from(DECISIONS), negated=st.booleans())
    return st.one_of(compared, compared, phases, lasts, amounts)


def _joined() -> st.SearchStrategy[Facts]:
    one = st.builds(lambda fact: Facts(facts=(fact,)), _facts())
    more = st.lists(_facts(), min_size=2, max_size=3).map(tuple)
    return st.one_of(one, st.builds(Facts, join=st.sampled_from(("and", "or")), facts=more))


def claims() -> st.SearchStrategy[Claim]:
    """One claim, called ``drawn``."""
    deeds = st.sampled_from(DEEDS)
    said = st.one_of(
        st.builds(Always, claim=_joined(), implies=st.one_of(st.none(), _joined())),
        st.builds(AtMost, n=st.integers(0, 4), word=deeds),
        st.builds(Never, deed=deeds, after=deeds),
        st.builds(Within, n=st.integers(1, 12)),
    )
    return st.builds(lambda says: Claim(name="drawn", says=says), said)
