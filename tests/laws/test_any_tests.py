"""Whatever a test says, in whatever order: it passes or fails, and what is said of it can be shown."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lang_policies import Writer

from engine.core.policy import Policy
from engine.core.vocabulary import RESOURCES, TREE_RESOURCES
from engine.testing.drawn_policies import policies
from engine.testing.drawn_trees import tree_policies
from policy_lang.testing.formats import Ran, as_json, as_junit
from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run
from policy_lang.testing.report import failed

EVENTS = (
    "call",
    "model answers",
    'model answers "" tokens 3',
    'model asks "search", "fetch"',
    'model asks unknown "shell", "search" args "{" tokens 1',
    "model fails rate_limit",
    "model fails host retry_after 1d",
    'tool "search" ok',
    'tool "search" fails',
    'tool "fetch" times_out result "x"',
    'spawn "explore"',
    'spawn "reader" tokens 1',
    "child ends tokens 9",
    "approved",
    "refused",
    "extended 2",
    "cancelled",
    "1ms pass",
    "11m pass",
)
EXPECTATIONS = (
    "call",
    "final",
    "stop",
    "done",
    'run "search"',
    'skip "search"',
    'ask "search"',
    "ask tokens",
    "retry in 1s",
    "spawn",
    "queue",
    "refuse",
    "warn llm_calls",
    *(f"count {name} = 1" for name in RESOURCES if RESOURCES[name].unit == "count"),
    "count children = 1",
    "count cost = $1",
    "count wall = 1ms",
)
_lines = st.lists(
    st.one_of(
        st.builds("  when  {}{}".format, st.sampled_from(EVENTS), st.sampled_from(["", "", " times 2"])),
        st.sampled_from([f"  expect  {words}" for words in EXPECTATIONS]),
    ),
    max_size=12,
)
_amounts = {"count": "{}", "money": "${}", "duration": "{}ms"}


@st.composite
def givens(draw: st.DrawFn) -> list[str]:
    """What was used before, in whatever scope."""
    made = []
    for name in draw(st.lists(st.sampled_from([*RESOURCES, *TREE_RESOURCES]), unique=True, max_size=3)):
        if name == "attempt_wall":
            continue
        known = RESOURCES.get(name)
        scopes = known.scopes if known and name != "wall" else ()
        scope = draw(st.sampled_from(["", *(f" per {scope}" for scope in scopes)]))
        amount = _amounts[known.unit if known else "count"].format(draw(st.integers(0, 9)))
        made.append(f"  given  {name} {amount}{scope}")
    return made


@given(st.one_of(policies(), tree_policies(), tree_policies(questions=True)), givens(), _lines, st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_a_test_passes_or_fails_and_never_breaks(
    policy: Policy, before: list[str], lines: list[str], seed: int
) -> None:
    final = policy.finalization
    prefer = final.prefer if len(final.prefer) > 1 else ()
    policy = policy.model_copy(update={"finalization": final.model_copy(update={"prefer": prefer})})
    text = Writer(random.Random(seed), named=False).write(policy).rstrip("\n")
    # Tools and agents that are named before they are asked for are findings; here they are about the order.
    known = ["  when  call", '  when  model asks "search", "fetch"']
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "any.policy")
        path.write_text("\n".join([text, 'test "any" {', *before, *known, *lines, "}", ""]), encoding="utf-8")
        suite = load(str(path))
    assume(not suite.errors)
    compiled = suite.compiled()
    result = run(compiled, suite.cases[0])
    shown = Ran(suite.path, [result], suite.sources, [])
    assert as_json([shown])
    assert as_junit([shown])
    if result.failure is not None:
        assert failed(suite.path, result, suite.sources)
        place = result.failure.span
        assert place.text
        assert place.line > text.count("\n")
