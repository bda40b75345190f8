"""``test "NAME" { … }``: every word and quantity of a test judged, and those names that only its policy can tell.

Gives ``Case``s. Whether a test passes is found out by playing it, in ``policy_lang.testing``; what depends on the
numbers of the policy is told there too, since the host may set them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from engine.core.vocabulary import COUNTED, PREFER_ORDER, REASONS, RESOURCES, TREE_RESOURCES
from policy_lang import tree
from policy_lang.cases import Asked, Case, Event, Expectation, Given
from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.names import nearest, some
from policy_lang.quantities import COUNT, DURATION, MONEY, Quantity
from policy_lang.removals import moved
from policy_lang.resolve.names import quantity
from policy_lang.resolve.values import Use, Values
from policy_lang.source import Span
from policy_lang.texts import client_text, quote, unescape

MOST_TIMES = 10_000
"""Events that one ``times`` may stand for."""

TOOL_ENDS = {"ok": "ok", "fails": "failed", "denied": "denied", "times_out": "timed_out"}
"""How a tool ends, as a test says it and as the event does."""

STOP_REASONS = (
    *RESOURCES,
    *REASONS,
    "llm_failure",
    "breaker",
    "finalization_disobeyed",
    "empty_answer",
    "usage_unknown",
    "price_unknown",
    "cancelled",
)
"""Why a run may stop: a resource, why the model failed, or one of the ends that no limit has caused."""

_REFUSING = tuple(name for name in (*TREE_RESOURCES, *RESOURCES) if name not in ("concurrent", "attempt_wall"))
REFUSAL_REASONS = (*_REFUSING, "final", "closing")
_GIVEABLE = (*(name for name in RESOURCES if name != "attempt_wall"), *TREE_RESOURCES)


class Facts(NamedTuple):
    """What a policy has that its tests may name; ``None`` is: not known here."""

    clients: Collection[str] | None = None
    agents: Collection[str] | None = None


def cases_of(statements: tuple[tree.Statement, ...], values: Values, facts: Facts, imported: bool) -> list[Case]:
    """The tests of one file, those left out that are too wrong to be played."""
    found: list[Case] = []
    first: dict[str, Span] = {}
    for statement in statements:
        if not isinstance(statement, tree.Test):
            continue
        case = _Block(statement, values, facts, imported).case()
        if case is None:
            continue
        if case.name in first:
            why = Label(first[case.name], "first here")
            values.report.error(
                "P210", "two tests have this name", case.span, "again", why, help="say what sets it apart"
            )
            continue
        first[case.name] = case.span
        found.append(case)
    return found


class _Block:
    """One test being judged, line by line."""

    def __init__(self, block: tree.Test, values: Values, facts: Facts, imported: bool) -> None:
        self.block, self.values, self.facts, self.imported = block, values, facts, imported
        self.report = values.report
        self.tools: dict[str, None] = {}
        """Tools that the model has asked for so far."""
        self.agents: dict[str, None] = {}
        self.wrong = False

    def case(self) -> Case | None:
        block = self.block
        before = sum(finding.is_error for finding in self.report.findings)
        name = self.values.plain(block.name, "the name of a test", "say what it shows")
        agent = "" if block.agent is None else self._own_agent(block.agent)
        given: list[Given] = []
        lines: list[Event | Expectation] = []
        for line in block.lines:
            if isinstance(line, tree.Broken):
                self.wrong = True
            elif isinstance(line, tree.Given):
                self._in_order(line, lines)
                given += [made for counter in line.counters if (made := self._given(counter, given))]
            elif isinstance(line, tree.When):
                event = self._event(line)
                lines += [event] if event else []
            else:
                lines.append(self._expectation(line.decision))
        if not self.wrong and not any(isinstance(line, tree.Expect) for line in block.lines):
            self._expects_nothing()
        if self.wrong or name is None or sum(f.is_error for f in self.report.findings) > before:
            return None
        return Case(name, block.name.span, tuple(given), tuple(lines), self.imported, agent)

    def _expects_nothing(self) -> None:
        self.report.warn(
            "P323",
            "this test expects nothing, so it cannot fail",
            self.block.name.span,
            "no `expect` in it",
            help="add a line such as `expect call`, or remove the test",
        )

    # ---- given

    def _in_order(self, line: tree.Given, lines: list[Event | Expectation]) -> None:
        if lines:
            self.report.error(
                "P504",
                "`given` comes before the first event",
                line.span.head(),
                "too late: the run has begun",
                Label(lines[0].span, "it begins here"),
                help="move it to the top of the test",
                fix=moved(line.span, lines[0].span.start),
                safety=SAYS,
            )

    def _given(self, counter: tree.Counter, given: list[Given]) -> Given | None:
        word, scope = counter.resource, ""
        if isinstance(word, tree.Name) and word.text == "attempt_wall":
            message = "`attempt_wall` is measured anew for each attempt, so nothing of it can be used before"
            self.report.error("P501", message, word.span, "no counter", help="`when 10m pass` lets an attempt time out")
            return None
        resource = self.values.word(word, _GIVEABLE, "resource")
        if resource is None:
            return None
        if counter.scope is not None:
            named = self._scope(counter.scope, resource)
            if named is None:
                return None
            scope = "" if named == "run" else named
        found = self.values.amount(counter.value, Use(f"`{resource}`", _unit(resource), word.span))
        if found is None or found.value is None:
            return None
        first = next((g for g in given if (g.resource, g.scope) == (resource, scope)), None)
        if first is not None:
            why = Label(first.span, "first here")
            self.report.error("P210", f"`{resource}` is given twice", counter.span, "again", why, help="keep one")
            return None
        return Given(resource, scope, found.value, counter.span)

    def _scope(self, word: tree.Word, resource: str) -> str | None:
        """Whose use it is; ``None`` if that is wrong."""
        if resource in TREE_RESOURCES or resource == "wall":
            message = f"`{resource}` has one scope only"
            self.report.error("P209", message, word.span, "nothing to choose", help="remove `per`")
            return None
        scope = self.values.word(word, RESOURCES[resource].scopes, "scope")
        if scope == "thread" and self.block.agent is not None:
            message = "an agent has no thread"
            help = "`per node` is what its earlier runs have used"
            self.report.error("P209", message, word.span, "nothing to choose", help=help)
            return None
        return scope

    # ---- when

    def _event(self, line: tree.When) -> Event | None:
        act = line.event
        kind = act.kind.removeprefix("when_")
        times = self._times(line.times)
        event = Event(kind, act.span, times or 1)
        parts = act.parts
        if kind == "answers":
            return event._replace(text=self._read(parts[0]), tokens=self._used(parts[1]))
        if kind == "asks":
            *asked, used = parts
            return event._replace(asked=tuple(map(self._asked, asked)), tokens=self._used(used))
        if kind == "fails":
            return self._fails(event, *parts)
        if kind == "tool":
            return self._tool(event, *parts)
        if kind == "spawn":
            return event._replace(name=self._agent(parts[0]), tokens=self._used(parts[1]))
        if kind == "child_ends":
            name = "" if parts[0] is None else self._child(parts[0])
            return event._replace(name=name, tokens=self._used(parts[1]))
        if kind == "extended":
            return event._replace(amount=self._granted(parts[0]) or 0)
        if kind == "passes":
            use = Use("the time that passes", DURATION, least=1, zero="write how long, as in `30s pass`")
            found = self.values.amount(parts[0], use)
            return event._replace(amount=found.value or 0) if found else event
        return event

    def _times(self, value: tree.Value | None) -> int | None:
        if value is None:
            return 1
        use = Use("`times`", COUNT, least=1, zero="remove the line")
        found = self.values.amount(value, use)
        if found and found.value and found.value > MOST_TIMES:
            message = f"an event can happen at most {MOST_TIMES} times in a row"
            self.report.error(
                "P207", message, found.span, "too many", help="`given` starts where a run has come so far"
            )
        return found.value if found else None

    def _used(self, used: tree.Act | None) -> int | None:
        return None if used is None else self.values.count(used.parts[0], "`tokens`")

    def _asked(self, act: tree.Act) -> Asked:
        unknown, name, args = act.parts
        tool = self._text(name)
        self.tools[tool] = None
        return Asked(tool, self._read(args), unknown is not None, act.span)

    def _fails(self, event: Event, reason: tree.Word, after: tree.Value | None, used: tree.Act | None) -> Event:
        word = self.values.word(reason, tuple(REASONS), "reason of a failure")
        wait = self.values.amount(after, Use("`retry_after`", DURATION))
        return event._replace(word=word or "", retry_after=wait.value if wait else None, tokens=self._used(used))

    def _tool(self, event: Event, name: tree.Quoted, end: tree.Word, result: tree.Quoted | None) -> Event:
        word = self.values.word(end, tuple(TOOL_ENDS), "end of a tool")
        return event._replace(name=self._known_tool(name), word=word or "", result=self._read(result) or "")

    def _agent(self, text: tree.Quoted) -> str:
        name = self._text(text)
        self.agents[name] = None
        known = self.facts.agents
        if known and name not in known and (near := nearest(name, known)):
            self._no_agent(text, f"did you mean `{near}`?", (Edit(text.span, quote(near)),))
        return name

    def _own_agent(self, text: tree.Quoted) -> str:
        """The agent that a test is played as: one that the policy has a block for, since nothing else sets it apart."""
        name, known = self._text(text), self.facts.agents
        if name and known is not None and name not in known:
            near = self.values.meant(name, known)
            blocks = f"there is {some(sorted(known))}" if known else "this policy has none"
            help = f"did you mean `{near}`?" if near else blocks
            self._no_agent(text, help, (Edit(text.span, quote(near)),) if near else ())
        return name

    def _no_agent(self, text: tree.Quoted, help: str, fix: tuple[Edit, ...]) -> None:
        message = f"there is no `agent {text.span.text}`"
        self.report.error("P502", message, text.span, "no such block", help=help, fix=fix)

    def _child(self, text: tree.Quoted) -> str:
        return self._earlier(text, self.agents, "spawned", "when spawn")

    def _known_tool(self, text: tree.Quoted) -> str:
        return self._earlier(text, self.tools, "asked for", "when model asks")

    def _earlier(self, text: tree.Quoted, known: Collection[str], done: str, line: str) -> str:
        """A tool or agent that an earlier line of the test has named."""
        name = self._text(text)
        if not name or name in known or self.wrong:
            return name
        near = self.values.meant(name, known)
        fix = (Edit(text.span, quote(near)),) if near else ()
        so_far = f"so far: {some(known)}" if known else f"write `{line} {text.span.text}` above"
        help = f"did you mean `{near}`?" if near else so_far
        message = f"`{name}` was not {done} before this line"
        self.report.error("P502", message, text.span, f"not {done}", help=help, fix=fix)
        return name

    def _granted(self, value: tree.Value) -> int | None:
        """More of whatever is asked for: a count, or money where it is money."""
        meaning: Any = None
        if isinstance(value, tree.Name) and (known := self.values.names.find(value.text)):
            meaning = known.meaning
        elif isinstance(value, tree.Number):
            meaning = quantity(value, self.report)
            if meaning is None:
                return None
        money = isinstance(meaning, Quantity) and meaning.dimension == MONEY
        zero = "write `refused`: nothing more is granted"
        found = self.values.amount(value, Use("`extended`", MONEY if money else COUNT, least=1, zero=zero))
        return found.value if found else None

    def _read(self, text: tree.Quoted | None) -> str | None:
        """What a text says; ``None`` if there is none, or none that could be read."""
        return unescape(text, self.report) if isinstance(text, tree.Text) else None

    def _text(self, text: tree.Quoted) -> str:
        return self.values.plain(text, "a name", "write the name of the tool or agent") or ""

    # ---- expect

    def _expectation(self, act: tree.Act) -> Expectation:
        kind, parts, values = act.kind.removeprefix("expect_"), act.parts, self.values
        expected = Expectation(kind, act.span)
        if kind in ("run", "skip") or (kind == "ask" and isinstance(parts[0], tree.Text)):
            return expected._replace(word=self._known_tool(parts[0]))
        if kind == "ask":
            word = values.word(parts[0], tuple(r.name for r in RESOURCES.values() if r.askable), "resource to ask for")
            return expected._replace(kind="ask_limit", word=word or "")
        if kind == "fallback":
            return expected._replace(word=self._client(parts[0]))
        if kind == "retry":
            wait = values.amount(parts[0], Use("`retry in`", DURATION))
            return expected._replace(amount=wait.value if wait else None)
        if kind == "count":
            word = values.word(parts[0], COUNTED, "resource")
            found = values.amount(parts[1], Use(f"`{word}`", _unit(word))) if word else None
            return expected._replace(word=word or "", amount=found.value if found else None)
        known = {"final": PREFER_ORDER, "stop": STOP_REASONS, "refuse": REFUSAL_REASONS, "warn": tuple(RESOURCES)}
        if kind in known and parts[0] is not None:
            what = {"warn": "resource", "final": "reason for a final call", "stop": "reason to stop"}
            word = values.word(parts[0], known[kind], what.get(kind, "reason to refuse"))
            return expected._replace(word=word or "")
        return expected

    def _client(self, phrase: tree.Phrase) -> str:
        name = self.values.client(phrase) or ""
        known = self.facts.clients
        if not name or known is None or name in known:
            return name
        near = self.values.meant(name, known)
        fix = (Edit(phrase.span, client_text(near)),) if near else ()
        others = f"it may switch to {some(sorted(known))}" if known else "it has no `fallback`"
        help = f"did you mean `{near}`?" if near else others
        self.report.error("P503", f"this policy never switches to `{name}`", phrase.span, "never", help=help, fix=fix)
        return name


def _unit(resource: str | None) -> str:
    return RESOURCES[resource].unit if resource in RESOURCES else COUNT


def switched_to(policy: dict[str, Any]) -> Iterator[str]:
    """The clients that a policy (its JSON) may switch to, its agents' rules included."""
    for part in (policy, *policy["agent"]):
        for rule in part["failures"]:
            for step in rule["then"]:
                yield from step.get("clients", ())
        yield from (line["client"] for line in part["thresholds"] if line.get("client"))
