"""price that is probably not meant

No provider asks more for what a model reads than for what it writes, or more for input from its cache than for other
input. And no model costs a thousand dollars per million tokens: such prices are those of a thousand tokens, or in
cents.

Why: `cost` then ends runs far too early, or lets them cost many times what was meant.

Bad:

    policy "chat" lang 1
    limits {
      cost  $2
    }
    prices {
      "small-1"  input $10  output $2.50  per 1M
    }

Good:

    policy "chat" lang 1
    limits {
      cost  $2
    }
    prices {
      "small-1"  input $2.50  output $10  per 1M
    }

Fix: none; what a model costs is in the list of its provider.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.quantities import MONEY, text_of
from policy_lang.report import Report
from policy_lang.rules.subject import Subject

MOST = 1_000_000_000
"""Millionths of a dollar for a million tokens: a thousand dollars."""


def check(policy: Subject, report: Report) -> None:
    for data, row in policy.resolved.layers[-1].prices:
        if max(data["input"], data["output"]) >= MOST:
            dearest = max(data["input"], data["output"])
            place = row.output if data["output"] == dearest else row.input
            message = f"`{data['model']}` would cost {text_of(dearest, MONEY)} per million tokens"
            label, help = "more than any model costs", "write the price of a million tokens in dollars, and `per 1M`"
            report.note("P379", message, place.span, label, Label(row.per.span, "for so many"), help=help)
        elif data["input"] > data["output"]:
            message = f"`{data['model']}` would cost more to read than to write"
            help = "exchange the two prices, if they were"
            report.note("P379", message, row.input.span, "more than the output", Label(row.output.span, ""), help=help)
        elif data["cached"] is not None and data["cached"] > data["input"] and isinstance(row.cached, tree.Node):
            message = f"`{data['model']}` would cost more to read from its cache than otherwise"
            help = "exchange the two prices, if they were"
            report.note("P379", message, row.cached.span, "more than the input", Label(row.input.span, ""), help=help)
