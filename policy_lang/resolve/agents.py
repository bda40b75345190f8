"""``agents`` and ``agent "NAME"``: limits on the tree of agents, their pools, and the rules of one agent.

One block of one file is judged by itself here. What a base's blocks do to it is the business of ``merge_agents``, what
agents and the limits of the policy do to one another that of ``rules``.
"""

from __future__ import annotations

from typing import Any

from engine.core.vocabulary import POOLABLE, RESOURCES, TREE_RESOURCES
from policy_lang import removals, tree
from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.names import nearest, quoted
from policy_lang.quantities import COUNT
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine, origin
from policy_lang.resolve.rules import Rules
from policy_lang.resolve.values import Use, Values
from policy_lang.source import Span

_WORDS = {"share": "shared", "carve": "carved"}
_MEANT = {
    "childs": "children",
    "max_children": "children",
    "max_depth": "depth",
    "levels": "depth",
    "concurrency": "concurrent",
    "parallel": "concurrent",
    "reserve": "carve",
}
"""What other words people write for the lines of `agents`."""


class TreeRules:
    """The lines of ``agents`` in one file. Its limits are like any other, without scope and ladder."""

    def __init__(self) -> None:
        self.limits: list[LimitLine] = []
        self.pools: dict[str, tuple[str, Span]] = {}
        """Resource, to `share` or `carve` and where that is said."""
        self.span: Span | None = None
        """The head of the block, if there is one."""

    def add(self, block: tree.Agents, values: Values) -> None:
        """Judge a block; a file has one."""
        head = block.span.head()
        if self.span is not None:
            values.report.error(
                "P210",
                "`agents` is written twice",
                head,
                "again",
                Label(self.span, "first here"),
                help="write all its lines in one block",
            )
            return
        self.span = head
        for line in block.lines:
            if isinstance(line, tree.Setting):
                self._limit(line, values)
            elif isinstance(line, tree.Share | tree.Carve):
                self._pools(line, values)

    def _limit(self, line: tree.Setting, values: Values) -> None:
        name = _tree_resource(line.resource, values.report)
        if name is None:
            if isinstance(line.value, tree.Name):
                values.names.find(line.value.text)
            return
        _no_options(line, name, values.report)
        least, zero = (1, "`depth 0` allows no agents") if name == "concurrent" else (0, "")
        use = Use(f"`{name}`", COUNT, line.resource.span, unlimited=True)
        value = values.amount(line.value, use)
        if value is None:
            return
        if value.value is not None and value.value < least:
            values.report.error(
                "P336",
                "`concurrent 0` lets no agent run",
                value.span,
                "all would queue for ever",
                help=zero,
            )
            return
        data: dict[str, Any] = {
            "resource": name,
            "scope": None,
            "max": value.value,
            "locked": line.modifier is not None and line.modifier.text == "locked",
            "then": [],
            "origin": origin(line.span),
        }
        override = line.modifier if line.modifier and line.modifier.text == "override" else None
        made = LimitLine(data, line, line.resource.span, value, override)
        first = next((known for known in self.limits if known.key == made.key), None)
        if first is None:
            self.limits.append(made)
            return
        values.report.error(
            "P210",
            f"`{name}` is limited twice",
            made.resource_span,
            "again",
            Label(first.resource_span, "first here"),
            help="keep one",
        )

    def _pools(self, line: tree.Share | tree.Carve, values: Values) -> None:
        for word in line.names:
            name = _pool(word, values)
            if name is None:
                continue
            how, first = self.pools.setdefault(name, (line.keyword, word.span))
            if first is word.span:
                continue
            both = how != line.keyword
            values.report.error(
                "P210",
                f"`{name}` is both shared and carved" if both else f"`{name}` is {_WORDS[how]} twice",
                word.span,
                _WORDS[line.keyword] if both else "again",
                Label(first, _WORDS[how] if both else "first here"),
                help="keep one: `share` lets agents draw on one pool, `carve` gives each its part of it"
                if both
                else "name each once",
            )


def _tree_resource(word: tree.Word, report: Report) -> str | None:
    if isinstance(word, tree.Missing) or word.text in TREE_RESOURCES:
        return None if isinstance(word, tree.Missing) else word.text
    if word.text in RESOURCES:
        report.error(
            "P106",
            f"`{word.text}` is limited in `limits`",
            word.span,
            "not here",
            help="write it in `limits`, or in the block of an `agent`; `share` and `carve` say how agents draw on it",
        )
        return None
    near = _MEANT.get(word.text) or nearest(word.text, [*TREE_RESOURCES, "share", "carve"])
    help = f"did you mean `{near}`?" if near else f"known: {quoted(TREE_RESOURCES, 'and')}"
    fix = (Edit(word.span, near),) if near else ()
    report.error("P201", f"unknown limit `{word.text}` of `agents`", word.span, "cannot be limited", help=help, fix=fix)
    return None


def _no_options(line: tree.Setting, name: str, report: Report) -> None:
    if line.options:
        report.error(
            "P209",
            f"`{name}` takes no options",
            line.options[0].span,
            "has no meaning here",
            help="remove it: it is counted of each agent by itself, through all its runs",
            fix=tuple(edit for option in line.options for edit in removals.behind(option.span)),
            safety=SAYS,
        )
    if line.steps:
        report.error(
            "P208",
            f"`{name}` has no ladder",
            line.steps[0].span,
            "no run ends here",
            help="remove it: an agent for which there is no room is refused, and one too many at a time waits"
            if name == "concurrent"
            else "remove it: an agent for which there is no room is refused",
            fix=tuple(edit for step in line.steps for edit in removals.step(step.span)),
            safety=SAYS,
        )


def _pool(word: tree.Word, values: Values) -> str | None:
    """A resource that agents can draw on together."""
    if isinstance(word, tree.Missing):
        return None
    if word.text in POOLABLE:
        return word.text
    why = {"wall": "time passes for all agents alike", "attempt_wall": "measured for each attempt"}
    if word.text in why or word.text in TREE_RESOURCES:
        values.report.error(
            "P209",
            f"`{word.text}` is no pool",
            word.span,
            why.get(word.text, "counted of each agent by itself"),
            help="remove it; a pool is what is counted for a whole tree, such as `tokens` or `tool_calls`",
        )
        return None
    return values.word(word, POOLABLE, "pool")


# ---- one agent


class AgentBlock(Rules):
    """What one file says of one agent."""

    def __init__(self, name: str, node: tree.Agent, values: Values) -> None:
        super().__init__(values)
        self.name = name
        self.node = node

    @property
    def span(self) -> Span:
        """The head of the block."""
        return Span(self.node.span.source, self.node.span.start, self.node.name.span.end)


def add_agent(node: tree.Agent, blocks: dict[str, AgentBlock], values: Values) -> None:
    """Judge a block and add it to those of the same file, by their names."""
    name = values.plain(node.name, "the name of an agent", "write the name it is spawned by")
    block = AgentBlock(name or "", node, values)
    for line in node.lines:
        if not isinstance(line, tree.Broken):
            block.add(line)
    for limit in block.limits:
        _check_scope(limit, values.report)
    if name is None:
        return
    if not node.lines:
        values.report.error(
            "P101",
            "an `agent` block needs a line",
            block.span,
            "says nothing of this agent",
            help="write its limits and rules, or remove it: an agent without a block has the rules of the policy",
        )
    if "*" in name or "?" in name:
        values.report.error(
            "P209",
            "an agent is named, not matched",
            node.name.span,
            f"no agent is called `{name}`",
            help="write a block for each agent; what holds for all of them is said outside",
        )
        return
    first = blocks.setdefault(name, block)
    if first is block:
        return
    values.report.error(
        "P210",
        f"the agent `{name}` has two blocks",
        block.span,
        "again",
        Label(first.span, "first here"),
        help="write all its lines in one block",
    )


def _check_scope(limit: LimitLine, report: Report) -> None:
    if limit.data["scope"] != "thread" or not isinstance(limit.node, tree.Setting):
        return
    option = next(option for option in limit.node.options if isinstance(option, tree.Per))
    report.error(
        "P209",
        "an agent has no thread of its own",
        option.span,
        "counts for the whole conversation",
        help="limit it `per run` or `per subtree` here, or `per thread` in `limits`",
    )
