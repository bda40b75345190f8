"""What a framework's module says about its settings, and the import that carries it out.

A module under ``frameworks`` has one ``FRAMEWORK``: a table of keys, each with a function that translates its value.
The import walks through the settings, hands each key to its function, and keeps account: what was carried over, what
was not and why, what says nothing about limits, and what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from policy_lang.importing.draft import Block, Clause, Draft, Limit, Statement
from policy_lang.importing.values import Place, Problem, Value, Wrong, amount, described, flag, snake, whole, word
from policy_lang.renderers.snippet import clean

LONGEST = 80
"""Signs of a path in a remark; of a longer one the last key is named."""


class Entry(NamedTuple):
    """What became of one key. ``said`` is the statement that was written, or why there is none."""

    path: str
    at: Place
    shown: str
    said: str


Handler = Callable[[Value, "Import"], None]


def _nothing(_: Import) -> None:
    return None


def _walk(value: Value, into: Import) -> None:
    into.walk(value)


class Framework(NamedTuple):
    """One framework's settings.

    ``name`` is for `--from`, ``title`` for people, ``version`` the one whose behaviour is described (empty where no
    version matters). ``keys`` translates: keys in snake case, whatever case the file has. ``words`` are further
    signs of this framework, class names in snake case. ``beside`` are keys that say nothing about limits. ``shared``
    are keys that other programs use as well: alone they do not show that a file is of this framework. ``start`` is
    given the whole file; ``finish`` is called when all keys were seen, for what depends on several of them.
    """

    name: str
    title: str
    version: str
    keys: Mapping[str, Handler]
    words: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    start: Handler = _walk
    finish: Callable[[Import], None] = _nothing


class Import:
    """One import: the draft of the policy, and the account of every key."""

    def __init__(self, framework: Framework, draft: Draft) -> None:
        self.framework = framework
        self.draft = draft
        self.block: Block = draft
        """Where limits and tool rules go: the policy, or the agent that is read."""
        self.kept: dict[str, Value] = {}
        """What functions of keys leave for ``finish``."""
        self.later: list[Callable[[], None]] = []
        """What can be said only when everything was read."""
        self.carried: list[Entry] = []
        self.lost: list[Entry] = []
        self.beside: list[Entry] = []
        self.problems: list[Problem] = []

    def run(self, settings: Value) -> None:
        """Everything, in order."""
        self.framework.start(settings, self)
        self.framework.finish(self)
        for one in self.later:
            one()
        if not self.problems:
            self._rest(settings, {entry.path for entry in (*self.carried, *self.lost, *self.beside)})
        for entries in (self.carried, self.lost, self.beside):
            entries.sort(key=lambda entry: entry.at)
        self.problems.sort(key=lambda problem: problem.at)

    def _rest(self, value: Value, told: set[str]) -> None:
        """Whatever has no entry yet gets one, so that no key is dropped in silence."""
        if value.path in told:
            return
        inside = [*value.mapping.values(), *value.items]
        for one in inside:
            self._rest(one, told)
        if inside:
            return
        if value.data is None or value.data in ({}, [], ""):
            self.same(value, "it is not set")
        elif snake(value.key) in self.framework.beside:
            self.left(value, "no limit")
        elif value in self.kept.values():
            self.lose(value, "alone it sets no limit")
        else:
            self.lose(value, "nothing that this import understands in this place")

    # ---- walking

    def walk(self, value: Value) -> None:
        """Hand every key to its function. What contains no known key is one loss, however much is in it."""
        self._one_agent(value)
        for key, one in value.mapping.items():
            name = snake(key)
            if handler := self.framework.keys.get(name):
                handler(one, self)
            elif name in self.framework.beside:
                self.left(one, "no limit")
            elif self._concerns(one):
                self.walk_all(one)
            else:
                self.lose(one, f"no setting of {self.framework.title} that this import knows")

    def walk_all(self, value: Value) -> None:
        """The same for a mapping, or for each mapping of a list."""
        for one in value.items or [value]:
            if isinstance(one.data, dict):
                self.walk(one)
            elif value.items:
                self.lose(one, f"no setting of {self.framework.title} that this import knows")

    def _one_agent(self, value: Value) -> None:
        """Mappings beside each other with the same setting are of several agents, and one policy is for one."""
        seen: dict[str, Value] = {}
        for key, one in value.mapping.items():
            if snake(key) in self.framework.keys or snake(key) in self.framework.beside:
                continue
            for name in {snake(inner) for inner in one.mapping} & self.framework.keys.keys():
                if other := seen.get(name):
                    told = f"`{clean(other.key)}` has `{name}` as well, and one policy is for one agent"
                    self.wrong(one, Wrong(told, "import each by itself"))
                    return
                seen[name] = one

    def _concerns(self, value: Value) -> bool:
        inside = [*value.mapping.values(), *value.items]
        names = {snake(key) for key in value.mapping}
        return bool(names & self.framework.keys.keys()) or any(map(self._concerns, inside))

    @contextmanager
    def agent(self, name: str) -> Iterator[None]:
        """What is read within is about the agent of that name, and is finished with it."""
        before, self.block, self.kept = (self.block, self.kept), self.draft.agent(name), {}
        try:
            yield
            self.framework.finish(self)
        finally:
            self.block, self.kept = before

    # ---- the account

    def lose(self, value: Value, why: str) -> None:
        """A key that the policy does not have, and why."""
        self.lost.append(self._unread(value, why))

    def left(self, value: Value, why: str) -> None:
        """A key that says nothing about limits."""
        self.beside.append(self._unread(value, why))

    def same(self, value: Value, why: str) -> None:
        """A key that needs no line: it is so here anyway."""
        self.carried.append(self._entry(value, f"nothing to write: {why}"))

    def wrong(self, value: Value, wrong: Wrong) -> None:
        """A value that cannot be what is meant; then no policy is written."""
        self.problems.append(Problem(value.at, f"`{value.path}`: {wrong.message}", wrong.help))

    def _unread(self, value: Value, said: str) -> Entry:
        """An entry that keeps a text to itself: among what is no limit there may be a key to something."""
        shown = "a text" if isinstance(value.data, str) else value.shown()
        return self._entry(value, said)._replace(shown=shown)

    def _entry(self, value: Value, said: str) -> Entry:
        return Entry(value.path, value.key_at, value.shown(), said)

    # ---- values; None where there is none, or it is wrong and was told

    def number(self, value: Value, least: int = 0) -> int | None:
        return self._judged(value, whole(value, least))

    def milliseconds(self, value: Value) -> int | None:
        """A number of seconds, perhaps with decimals."""
        return self._judged(value, amount(value, 1_000, "a millisecond"))

    def time(self, value: Value) -> int | None:
        """The same, of a limit: some time there must be."""
        found = self.milliseconds(value)
        if found == 0:
            self.wrong(value, Wrong("no time at all lets nothing start", "leave the key out for no limit"))
            return None
        return found

    def dollars(self, value: Value) -> int | None:
        """A number of dollars, in millionths."""
        return self._judged(value, amount(value, 1_000_000, "a millionth of a dollar"))

    def truth(self, value: Value) -> bool | None:
        found = flag(value)
        if isinstance(found, Wrong):
            self.wrong(value, found)
            return None
        return found

    def text(self, value: Value, known: tuple[str, ...] = ()) -> str | None:
        found = word(value, known)
        if isinstance(found, Wrong):
            self.wrong(value, found)
            return None
        return found

    def texts(self, value: Value) -> list[tuple[Value, str]]:
        """The texts of a list, each with its place; a text alone is a list of one."""
        if not isinstance(value.data, (list, str)):
            self.wrong(value, Wrong(f"expected a list of texts, not {described(value)}"))
            return []
        found = ((one, self.text(one)) for one in (value.items if isinstance(value.data, list) else [value]))
        return [(one, text) for one, text in found if text is not None]

    def mapping(self, value: Value) -> dict[str, Value]:
        """Its values by key in snake case."""
        if not isinstance(value.data, dict):
            self.wrong(value, Wrong(f"expected a mapping, not {described(value)}"))
        found: dict[str, Value] = {}
        for key, one in value.mapping.items():
            if other := found.get(snake(key)):
                self.wrong(one, Wrong(f"`{other.key}` is the same setting", "keep one"))
            found[snake(key)] = one
        return found

    def _judged(self, value: Value, found: int | Wrong) -> int | None:
        if isinstance(found, Wrong):
            self.wrong(value, found)
            return None
        return found

    # ---- statements, each with what it is from

    def limit(self, value: Value, limit: Limit, why: str) -> None:
        self.block.limit(limit, self._remark(value, why))
        self._carry(value, limit.text())

    def tool(self, value: Value, pattern: str, clause: Clause, why: str) -> None:
        self.block.tool(pattern, clause, self._remark(value, why))
        self._carry(value, f'tool "{pattern}" {clause.kind} {clause.rest}'.rstrip())

    def failure(self, value: Value, reason: str, steps: Iterable[str], why: str) -> None:
        steps = list(steps)
        self.block.failure(reason, steps, self._remark(value, why))
        self._carry(value, f"on llm_failure {reason} {' then '.join(steps)}")

    def unknown_tool(self, value: Value, text: str, why: str) -> None:
        self.block.unknown_tool = Statement(f"on unknown_tool {text}", [self._remark(value, why)])
        self._carry(value, f"on unknown_tool {text}")

    def breaker(self, value: Value, pattern: str, line: str, why: str) -> None:
        lines, remarks = self.draft.breakers.setdefault(pattern, ([], []))
        lines.append(line)
        remarks.append(self._remark(value, why))
        self._carry(value, f'breaker "{pattern}": {line}')

    def finalization(self, value: Value, line: str, why: str) -> None:
        self.draft.finalization[line.split()[0]] = Statement(line, [self._remark(value, why)])
        self._carry(value, f"finalization: {line}")

    def tree(self, value: Value, line: str, why: str) -> None:
        self.draft.tree[line.split()[0]] = Statement(line, [self._remark(value, why)])
        self._carry(value, f"agents: {line}")

    def price(self, value: Value, model: str, rates: str) -> None:
        self.draft.prices[model] = rates
        self._carry(value, f'prices: "{model}" {rates}')

    def _carry(self, value: Value, said: str) -> None:
        self.carried.append(self._entry(value, said))

    def _remark(self, value: Value, why: str) -> str:
        """``From max_turns 10, line 3: why``."""
        scalar = "" if isinstance(value.data, (dict, list)) else f" {value.shown()}"
        line = f", line {value.key_at.line}" if value.key_at.line else ""
        path = clean(value.path)
        return f"From {path if len(path) <= LONGEST else value.shown_key()}{scalar}{line}{f': {why}' if why else '.'}"
