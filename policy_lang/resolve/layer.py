"""One file's own contribution to the policy: every statement judged, nothing merged yet."""

from __future__ import annotations

import os
import re
from typing import Any

from engine.core.vocabulary import LANG
from policy_lang import tree
from policy_lang.diagnostics import Edit, Label
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine, breaker
from policy_lang.resolve.failures import FailureLine, failure, repeated
from policy_lang.resolve.files import Unit
from policy_lang.resolve.later import check_agent, check_agents
from policy_lang.resolve.limits import LimitLine, limit_line
from policy_lang.resolve.statements import (
    FinalLine,
    ThresholdLine,
    finalization,
    on_unknown_tool,
    price,
    threshold,
)
from policy_lang.resolve.tools import ToolLine, tool
from policy_lang.resolve.values import Values
from policy_lang.source import Span


class Layer:
    """What one file says, in order. Of an imported file only breakers and tools."""

    def __init__(self, unit: Unit, values: Values, imported: bool = False) -> None:
        self.unit = unit
        self.values = values
        self.report: Report = values.report
        self.name: str | None = None
        self.limits: list[LimitLine] = []
        self.lost = False
        """Was there a limit too wrong to mean anything? Then a resource that seems unlimited may be limited."""
        self.final: list[FinalLine] = []
        self.final_span: Span | None = None
        self.thresholds: list[ThresholdLine] = []
        self.failures: list[FailureLine] = []
        self.breakers: list[BreakerLine] = []
        self.tools: list[ToolLine] = []
        self.prices: list[tuple[dict[str, Any], tree.Price]] = []
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
        name = name if re.fullmatch(r"[\w.-]+", name) else "name"
        line = f'policy "{name}" lang {LANG}'
        fix = (Edit(Span(source, at.start, at.start), f"{line}\n"),)
        self.report.error(
            "P111", message, at, "expected before this" if statements else "", help=f"begin with `{line}`", fix=fix
        )

    # ---- statements

    def _statement(self, statement: tree.Statement, imported: bool) -> None:
        values = self.values
        if isinstance(statement, tree.Tool):
            if made := tool(statement, values):
                self.tools.append(made)
        elif isinstance(statement, tree.Breaker):
            if switch := breaker(statement, values):
                self.breakers.append(switch)
        elif imported:
            return
        elif isinstance(statement, tree.Limits):
            for line in statement.lines:
                if not isinstance(line, tree.Setting):
                    continue
                if limit := limit_line(line, values):
                    self._limit(limit)
                else:
                    self.lost = True
        elif isinstance(statement, tree.Finalization):
            self._finalization(statement)
        elif isinstance(statement, tree.Threshold):
            if line_made := threshold(statement, values):
                self.thresholds.append(line_made)
        elif isinstance(statement, tree.On):
            self._on(statement)
        elif isinstance(statement, tree.Prices):
            for row in statement.lines:
                if isinstance(row, tree.Price) and (rate := price(row, values)):
                    self._price(rate, row)
        elif isinstance(statement, tree.Agents):
            check_agents(statement, values)
        elif isinstance(statement, tree.Agent):
            check_agent(statement, values)

    def _limit(self, limit: LimitLine) -> None:
        first = next((known for known in self.limits if known.key == limit.key), None)
        if first is None:
            self.limits.append(limit)
            return
        both = {isinstance(first.node, tree.On), isinstance(limit.node, tree.On)} == {True, False}
        message = f"`{limit.title}` is limited twice"
        help = (
            "`on unknown_tool reply N` is this limit in other words: keep one"
            if both
            else "keep one; scopes differ by `per`"
        )
        self.report.error(
            "P210", message, limit.resource_span, "again", Label(first.resource_span, "first here"), help=help
        )

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

    def _on(self, statement: tree.On) -> None:
        what = self.values.word(statement.what, ("unknown_tool", "llm_failure"), "event")
        if what == "unknown_tool":
            if limit := on_unknown_tool(statement, self.values):
                self._limit(limit)
        elif what == "llm_failure":
            made = failure(statement, self.values)
            if made and (rule := repeated(made, self.failures, self.report)):
                self.failures.append(rule)

    def _price(self, rate: dict[str, Any], row: tree.Price) -> None:
        first = next((known for data, known in self.prices if data["model"] == rate["model"]), None)
        if first is not None:
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
