"""The rules that one file, or one agent's block in it, collects: limits, thresholds, failures, tools.

Each statement is judged, and told if it says again what an earlier one of the same place has said. Nothing is merged.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.resolve.failures import FailureLine, failure, repeated
from policy_lang.resolve.limits import LimitLine, limit_line
from policy_lang.resolve.statements import ThresholdLine, on_unknown_tool, threshold
from policy_lang.resolve.tools import ToolLine, tool
from policy_lang.resolve.values import Values


class Rules:
    """What was said so far, in order."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.report = values.report
        self.limits: list[LimitLine] = []
        self.lost = False
        """Was there a limit too wrong to mean anything? Then a resource that seems unlimited may be limited."""
        self.thresholds: list[ThresholdLine] = []
        self.failures: list[FailureLine] = []
        self.tools: list[ToolLine] = []

    def add(self, statement: tree.Setting | tree.Threshold | tree.On | tree.Tool) -> None:
        """Judge a statement, and keep it if it means something."""
        values = self.values
        if isinstance(statement, tree.Setting):
            if limit := limit_line(statement, values):
                self.add_limit(limit)
            else:
                self.lost = True
        elif isinstance(statement, tree.Threshold):
            if line := threshold(statement, values):
                self.thresholds.append(line)
        elif isinstance(statement, tree.On):
            self._on(statement)
        elif rule := tool(statement, values):
            self.tools.append(rule)

    def add_limit(self, limit: LimitLine) -> None:
        """Keep a limit, unless there is one of the same resource and scope."""
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

    def _on(self, statement: tree.On) -> None:
        what = self.values.word(statement.what, ("unknown_tool", "llm_failure"), "event")
        if what == "unknown_tool":
            if limit := on_unknown_tool(statement, self.values):
                self.add_limit(limit)
        elif what == "llm_failure":
            made = failure(statement, self.values)
            if made and (rule := repeated(made, self.failures, self.report)):
                self.failures.append(rule)
