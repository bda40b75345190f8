"""One file's own contribution to the policy: every statement judged, nothing merged yet."""

from __future__ import annotations

import os
import re
from typing import Any

from engine.core.vocabulary import LANG
from policy_lang import tree
from policy_lang.diagnostics import SAYS, UNSAFE, Edit, Label
from policy_lang.removals import above, moved
from policy_lang.resolve.agents import AgentBlock, TreeRules, add_agent
from policy_lang.resolve.breakers import BreakerLine, breaker
from policy_lang.resolve.files import Unit
from policy_lang.resolve.rules import Rules
from policy_lang.resolve.statements import FinalLine, finalization, price
from policy_lang.resolve.values import Values
from policy_lang.source import Span


class Layer(Rules):
    """What one file says, in order. Of an imported file only breakers and tools."""

    def __init__(self, unit: Unit, values: Values, imported: bool = False) -> None:
        super().__init__(values)
        self.unit = unit
        self.name: str | None = None
        self.final: list[FinalLine] = []
        self.final_span: Span | None = None
        self.breakers: list[BreakerLine] = []
        self.tree = TreeRules()
        self.blocks: dict[str, AgentBlock] = {}
        self.prices: list[tuple[dict[str, Any], tree.Price]] = []
        self._priced: dict[str, tree.Price] = {}
        self._header()
        for statement in unit.file.statements:
            self._statement(statement, imported)

    # ---- the header

    def _header(self) -> None:
        statements = self.unit.file.statements
        headers = [s for s in statements if isinstance(s, tree.Header)]
        if not headers:
            if not self.unit.broken:
                self._no_header()
            return
        header = headers[0]
        for again in headers[1:]:
            self.report.error(
                "P210",
                "a file has one `policy` line",
                again.span,
                "again",
                Label(header.span, "first here"),
                help="one policy a file",
            )
        if statements[0] is not header and not isinstance(statements[0], tree.Broken):
            self.report.error(
                "P111",
                "the `policy` line must come first",
                header.span,
                "",
                Label(statements[0].span.head(), "stands before it"),
                help="move it to the top of the file",
                fix=moved(header.span, statements[0].span.start),
                safety=SAYS,
            )
        self.name = self.values.plain(header.name, "the name of a policy", "give it a name people know it by")
        if isinstance(header.lang, tree.Number) and header.lang.text != str(LANG):
            self.report.error(
                "P112",
                f"this version reads `lang {LANG}` only",
                header.lang.span,
                f"expected `{LANG}`",
                help=f"write `lang {LANG}`",
                fix=(Edit(header.lang.span, str(LANG)),),
            )

    def _no_header(self) -> None:
        source = self.unit.source
        statements = self.unit.file.statements
        at = statements[0].span.head() if statements else Span(source, 0, 0)
        message = "this file has no `policy` line" if statements else "this file contains no policy"
        name = os.path.basename(source.name).removesuffix(".policy")
        known = re.fullmatch(r"[\w.-]+", name)
        name = name if known else "name"
        line = f'policy "{name}" lang {LANG}'
        top = above(source, at.start)
        fix = (Edit(Span(source, top, top), f"{line}\n"),)
        self.report.error(
            "P111",
            message,
            at,
            "expected before this" if statements else "",
            help=f"begin with `{line}`",
            fix=fix,
            safety=SAYS if statements and known else UNSAFE,
        )

    # ---- statements

    def _statement(self, statement: tree.Statement, imported: bool) -> None:
        values = self.values
        if isinstance(statement, tree.Tool):
            self.add(statement)
        elif isinstance(statement, tree.Breaker):
            if switch := breaker(statement, values):
                self.breakers.append(switch)
        elif imported:
            return
        elif isinstance(statement, tree.Limits):
            for line in statement.lines:
                if isinstance(line, tree.Setting):
                    self.add(line)
        elif isinstance(statement, tree.Finalization):
            self._finalization(statement)
        elif isinstance(statement, tree.Threshold | tree.On):
            self.add(statement)
        elif isinstance(statement, tree.Prices):
            for row in statement.lines:
                if isinstance(row, tree.Price) and (rate := price(row, values)):
                    self._price(rate, row)
        elif isinstance(statement, tree.Agents):
            self.tree.add(statement, values)
        elif isinstance(statement, tree.Agent):
            add_agent(statement, self.blocks, values)

    @property
    def agents(self) -> list[AgentBlock]:
        """The blocks of agents, in the order of the file."""
        return list(self.blocks.values())

    def _finalization(self, block: tree.Finalization) -> None:
        if self.final_span is not None:
            self.report.error(
                "P210",
                "`finalization` is written twice",
                block.span.head(),
                "again",
                Label(self.final_span, "first here"),
                help="write all its lines in one block",
            )
            return
        self.final_span = block.span.head()
        self.final = finalization(block, self.values)

    def _price(self, rate: dict[str, Any], row: tree.Price) -> None:
        first = self._priced.setdefault(rate["model"], row)
        if first is not row:
            self.report.error(
                "P210",
                f"`{rate['model']}` is priced twice",
                row.model.span,
                "again",
                Label(first.model.span, "first here"),
                help="keep one",
            )
            return
        self.prices.append((rate, row))
