"""What one decision costs: beside hand-written code, with more limits, and where amounts are limited too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks import between
from benchmarks.harness import Case, Effort, Times, measure
from benchmarks.report import Row, Section, duration, verdict
from benchmarks.task import ANSWERS, QUESTIONS, STARTED, Counter, Made, MeteredCounter, Twin, built, made, policy
from engine.core.decisions import AnyDecision, Illegal
from engine.core.messages import Usage
from engine.core.policy import Finalize, Limit, Policy, Price, ResourceName, ScopeName, Threshold, ToolRule
from engine.core.step import Compiled, compile

ANCHOR = "hand-written object, 11 questions"
TWIN = "hand-written twin, 22 events"
TWIN_BUILT = "the twin, event built for each step"

USAGE = Usage(input=1200, output=80, cached=1000)


def sections(effort: Effort) -> Iterator[Section]:
    yield _one_run(effort)
    yield _between(effort)
    yield _kinds(effort)
    yield _more_limits(effort)
    yield _amounts(effort)


def _one_run(effort: Effort) -> Section:
    made_events = made()
    events, steps = built(made_events), len(made_events)
    compiled, reference = compile(policy()), compile(policy(), reference=True)
    _agree(compiled, reference, events)
    cases = (
        Case(ANCHOR, questions, len(QUESTIONS)),
        Case(TWIN, lambda: twin(events), steps),
        Case(TWIN_BUILT, lambda: twin_built(made_events), steps),
        Case("ours, event ready", ready(compiled, events), steps),
        Case("ours, event built for each step", built_each_step(compiled, made_events), steps),
        Case("ours, by interpretation (reference)", ready(reference, events), steps),
    )
    times = measure(cases, effort)
    section = Section(
        "One decision",
        "Six model calls and five tool rounds under `llm_calls 6` and `tool_iterations 5`, both `finalize`. The anchor "
        "answers the eleven questions of the task with a number. Ours gets 22 events with identities and answers with "
        "records; the twin does just that by hand, as a mutable object.",
        "step",
        ANCHOR,
    )
    section.timed(times, ANCHOR)
    section.timed(times, TWIN, note="checks identities, gives the same records")
    section.timed(times, "ours, event ready", ratio=2.0)
    section.timed(times, "ours, event built for each step", ratio=2.5)
    section.timed(times, "ours, event ready", shown="ours to the twin", anchor=TWIN, ratio=2.0)
    section.timed(
        times, "ours, event built for each step", shown="ours to the twin, both built", anchor=TWIN_BUILT, ratio=2.5
    )
    section.timed(times, "ours, by interpretation (reference)", note="what the generated code is checked against")
    _whole_runs(section, times, steps)
    return section


def _whole_runs(section: Section, times: Times, steps: int) -> None:
    asked = len(QUESTIONS)
    section.timed(times, ANCHOR, scale=asked, shown="a whole run: 11 questions", anchor="")
    for name in (TWIN, "ours, event ready"):
        row = Row(f"a whole run: {name}" + ("" if name == TWIN else ", 22 events"))
        row.value, row.best = duration(times.usual(name) * steps), duration(times.best(name) * steps)
        scale = steps / asked
        row.ratio = f"{times.ratio(name, ANCHOR, scale):.2f}x"
        row.best_ratio = f"{times.best_ratio(name, ANCHOR, scale):.2f}x"
        section.rows.append(row)


def _between(effort: Effort) -> Section:
    """From the object to ours, one thing at a time."""
    events = built(made())
    compiled = compile(policy())
    between.agree(events, decisions(compiled, (STARTED, *events))[1:])
    rows = {
        "the object: 11 questions, answered with numbers": questions,
        "it is told of all 22 events": lambda: between.told(events),
        "and checks which call or tool each is about": lambda: between.checked(events),
        "and answers with records that name their rule (the twin)": lambda: twin(events),
        "and makes its state anew at each step": lambda: between.kept(events),
        "ours": ready(compiled, events),
    }
    times = measure([Case(name, run) for name, run in rows.items()], effort)
    first = next(iter(rows))
    section = Section(
        "From the object to ours",
        "The same run, whole; each row does what the one above it does, and one thing more. All but the last are "
        "written by hand for just these two limits. What ours adds at last: any policy, several tools at once, further "
        "attempts, usage told late, deadlines and the ledger of a tree.",
        "run",
        first,
    )
    for name in rows:
        section.timed(times, name)
    return section


def _kinds(effort: Effort) -> Section:
    """Where the time goes: the middle of the run, event by event."""
    compiled = compile(policy())
    names = {
        9: "`CallRequested`, admitted",
        10: "`ModelReplied`, one tool may run",
        11: "`ToolRequested`",
        12: "`ToolEnded`, round complete",
        21: "`CallRequested`, the final call",
        22: "`ModelReplied`, the run ends",
    }
    state, cases = compiled.initial, []
    for i, event in enumerate((STARTED, *built(made()))):
        if i in names:
            cases.append(Case(names[i], _one_step(compiled, state, event)))
        state, _ = compiled.step(state, event)
    times = measure(cases, effort)
    section = Section("The same, event by event", "One event of the middle of that run, and its two last ones.", "step")
    for case in cases:
        section.timed(times, case.name)
    return section


def _one_step(compiled: Compiled, state: Any, event: Any) -> Callable[[], object]:
    step = compiled.step
    return lambda: step(state, event)


def _more_limits(effort: Effort) -> Section:
    events = built(made())
    tools = [ToolRule(glob=f"other_{i}", limit=10**6) for i in range(60)]
    variants: dict[str, tuple[int, Policy]] = {
        "no more": (0, policy()),
        "5 more counted limits": (5, policy(*_counted("thread"))),
        "18 more counted limits": (18, policy(*_counted("run", "thread", "subtree", "node"))),
        "20 more tool limits": (20, policy(tools=tuple(tools[:20]))),
        "60 more tool limits": (60, policy(tools=tuple(tools))),
    }
    compiled = {name: compile(p) for name, (_, p) in variants.items()}
    times = measure([Case(n, ready(c, events), len(events)) for n, c in compiled.items()], effort.longer(2))
    section = Section(
        "One more limit that does not fire",
        "The same run with more limits, all far away: each of the five counted resources once more, per thread; in "
        "every scope that is left (there are 18); and limits of other tools. The last rows divide what they add by "
        "their number. A machine with the 18 has 37 variables, and of more than 30 CPython makes a tuple in two parts.",
        "event",
        "no more",
    )
    for name in variants:
        section.timed(times, name)
    for name, (count, _) in variants.items():
        if count:
            usual, best = ((f(name) - f("no more")) / count * 1e9 for f in (times.usual, times.best))
            row = Row(f"a limit of the {name}", f"{usual:.1f} ns", f"{best:.1f} ns", bar="15 ns")
            row.met = verdict(usual, best, 15)
            section.rows.append(row)
    return section


def _counted(*scopes: ScopeName) -> Iterator[Limit]:
    """Every limit on a counted resource in these scopes that the task does not have already."""
    resources: tuple[ResourceName, ...] = (
        "llm_calls",
        "llm_attempts",
        "tool_iterations",
        "tool_calls",
        "unknown_tools",
    )
    for resource in resources:
        for scope in scopes:
            if scope != "run" or resource not in ("llm_calls", "tool_iterations"):
                yield Limit(resource=resource, scope=scope, max=200)


# -- amounts ------------------------------------------------------------------------------------


def amounts_policy() -> Policy:
    """The task with tokens, money, time and thresholds limited too; none of them is reached."""
    finalize = (Finalize(),)
    return policy(
        Limit(resource="tokens", max=1_000_000, reserve=5_000, then=finalize),
        Limit(resource="cost", max=50_000_000, reserve=10_000, then=finalize),
        Limit(resource="wall", max=3_600_000, reserve=10_000, then=finalize),
        prices=(Price(model="m", input=2_500_000, cached=1_250_000, output=10_000_000),),
        thresholds=(
            Threshold(percent=80, resource="tokens", action="warn"),
            Threshold(percent=90, resource="cost", action="tell", text="{left} left"),
        ),
    )


METERED = "hand-written object with amounts, 11 questions"


def _metered() -> None:
    ask = MeteredCounter().ask
    at = 0
    for question in QUESTIONS:
        at += 10
        ask(question, at, USAGE)


def _amounts(effort: Effort) -> Section:
    made_events = made(USAGE, "m")
    events = built(made_events)
    compiled, reference = compile(amounts_policy()), compile(amounts_policy(), reference=True)
    _agree(compiled, reference, events, twin=False)
    steps = len(events)
    cases = (
        Case(ANCHOR, questions, len(QUESTIONS)),
        Case(METERED, _metered, len(QUESTIONS)),
        Case("ours, event ready", ready(compiled, events), steps),
        Case("ours, event built for each step", built_each_step(compiled, made_events), steps),
    )
    times = measure(cases, effort)
    section = Section(
        "With tokens, money, time and thresholds",
        "The same run with `tokens`, `cost` and `wall` limited (with reserves), two thresholds, and usage in every "
        "reply: amounts are charged, deadlines and the largest output computed at each step.",
        "step",
        ANCHOR,
    )
    section.timed(times, ANCHOR)
    section.timed(times, METERED)
    section.timed(times, "ours, event ready")
    section.timed(times, "ours, event built for each step")
    section.timed(times, "ours, event ready", shown="ours to the object with amounts", anchor=METERED)
    return section


# -- the runs that are timed --------------------------------------------------------------------


def questions() -> None:
    step = Counter().step
    for question in QUESTIONS:
        step(question)


def twin(events: tuple[Any, ...]) -> None:
    step = Twin("run").step
    for event in events:
        step(event)


def twin_built(events: tuple[Made, ...]) -> None:
    step = Twin("run").step
    for kind, fields in events:
        step(kind(*fields))


def ready(compiled: Compiled, events: tuple[Any, ...]) -> Callable[[], None]:
    """A run with the events at hand."""
    step = compiled.step
    begun, _ = step(compiled.initial, STARTED)

    def run() -> None:
        state = begun
        for event in events:
            state, _ = step(state, event)

    return run


def built_each_step(compiled: Compiled, events: tuple[Made, ...]) -> Callable[[], None]:
    step = compiled.step
    begun, _ = step(compiled.initial, STARTED)

    def run() -> None:
        state = begun
        for kind, fields in events:
            state, _ = step(state, kind(*fields))

    return run


def decisions(compiled: Compiled, events: Iterable[Any]) -> list[AnyDecision]:
    """What ``step`` decides from the start of a run."""
    state, out = compiled.initial, []
    for event in events:
        state, decision = compiled.step(state, event)
        out.append(decision)
    return out


def _agree(compiled: Compiled, reference: Compiled, events: tuple[Any, ...], *, twin: bool = True) -> None:
    """Whoever is timed must decide alike."""
    ours = decisions(compiled, (STARTED, *events))
    assert not any(isinstance(d, Illegal) for d in ours)
    assert ours == decisions(reference, (STARTED, *events))
    counter = Counter()
    assert tuple(counter.step(q) for q in QUESTIONS) == ANSWERS
    if twin:
        by_hand = Twin("run")
        assert [by_hand.step(event) for event in events] == ours[1:]
