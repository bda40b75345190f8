"""client without a price

Where `cost` is limited, every model must stand in `prices`: of another nobody knows what a call may cost, so none is
made. The settings say which model each client is. A client that the policy may go to, by a `fallback` or by `use`,
needs a line for its model.

Why: the way out that is written down is refused just when it is needed.

Bad:

    policy "chat" lang 1
    limits {
      cost  $2
    }
    prices {
      "small-1"  input $1  output $2  per 1M
    }
    on llm_failure overloaded  fallback large  then stop
    # --- policy.toml
    [clients.small]
    wire = "openai"
    model = "small-1"

    [clients.large]
    wire = "openai"
    model = "large-1"

Good:

    policy "chat" lang 1
    limits {
      cost  $2
    }
    prices {
      "small-1"  input $1   output $2   per 1M
      "large-1"  input $10  output $20  per 1M
    }
    on llm_failure overloaded  fallback large  then stop
    # --- policy.toml
    [clients.small]
    wire = "openai"
    model = "small-1"

    [clients.large]
    wire = "openai"
    model = "large-1"

Fix: none; what the model costs is in the list of its provider.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Scope, Subject
from policy_lang.source import Span
from policy_lang.texts import quote


def check(policy: Subject, report: Report) -> None:
    clients = policy.around.clients or {}
    priced = {price["model"] for price in policy.merged.prices}
    told: set[Span] = set()
    for scope in policy.scopes:
        cost = next(iter((*scope.finite("cost"), *policy.main.finite("cost"))), None)
        for name, span in _switches(scope) if cost and priced else ():
            client = clients.get(name)
            if cost is not None and client is not None and client.model not in priced and span not in told:
                told.add(span)
                _unpriced(name, client.model, span, cost, report)


def _switches(scope: Scope) -> Iterator[tuple[str, Span]]:
    """The clients that an agent may go to, each with its place."""
    for rule in scope.failures:
        for step, data in zip(rule.steps, rule.data["then"], strict=True):
            if isinstance(step, tree.Fallback):
                yield from zip(data["clients"], (word.span for word in step.clients), strict=True)
    for line in scope.thresholds:
        if line.data.get("client") and line.node.text is not None:
            yield line.data["client"], line.node.text.span


def _unpriced(name: str, model: str, span: Span, cost: LimitLine, report: Report) -> None:
    report.warn(
        "P370",
        f"`cost` is limited, and the model of `{name}` has no price",
        span,
        "none of its calls can be made",
        Label(cost.resource_span, "needs the price of each model"),
        help=f"add `{quote(model)} input … output … per 1M` to `prices`",
    )
