"""The policy that a file stands for, written out in the language: everything inherited, every name resolved.

Each line says where it comes from. The text is a policy by itself, with the same meaning, save one
thing that a single file cannot say: an ``allow`` lifts only the denials of its own file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from engine.core.ladders import (
    DEFAULT_RETRY_MS,
    Ask,
    Consult,
    Extend,
    FailureStep,
    Fallback,
    Finalize,
    Origin,
    Retry,
    Step,
    Stop,
)
from engine.core.policy import AgentRules, Agents, Breaker, Detector, FailureRule, Limit, Policy, Threshold, ToolRule
from engine.core.vocabulary import RESOURCES
from policy_lang import tree
from policy_lang.explain_words import amount
from policy_lang.quantities import duration_text, money_text, text_of
from policy_lang.report import Report
from policy_lang.resolve.files import Loader
from policy_lang.source import read
from policy_lang.texts import client_text, quote

_DEFAULT: Final = "default"

Line = tuple[str, str]
"""A line of the language, and where it comes from."""


def effective(policy: Policy, final_lines: Mapping[str, Origin] | None = None) -> str:
    """The policy as text. ``final_lines`` says where each line of ``finalization`` stands, by its first word."""
    head = [f"policy {quote(policy.name)} lang {policy.lang}"]
    blocks = [
        _block("limits", _limits(policy)),
        _block("finalization", _finalization(policy, final_lines or {})),
        _aligned([(_threshold(t), _place(t.origin)) for t in policy.thresholds], indent=""),
        _aligned([(_failure(rule), _place(rule.origin)) for rule in policy.failures], indent=""),
        *(_breaker(breaker) for breaker in policy.breakers),
        _tools(policy.tools),
        _block("agents", _tree(policy.agents)),
        *(_agent(rules, policy) for rules in policy.agent),
        _block("prices", _prices(policy)),
    ]
    return "\n\n".join("\n".join(lines) for lines in (head, *blocks) if lines)


def final_lines(path: str, root: str | None = None) -> dict[str, Origin]:
    """Where each line of ``finalization`` stands, in the nearest file of the chain that has it."""
    place = os.path.realpath(path)
    loader = Loader(os.path.realpath(root) if root else os.path.dirname(place), Report())
    found: dict[str, Origin] = {}
    for unit in loader.load(place, read(path, path)).chain():
        for block in unit.file.statements:
            for line in block.lines if isinstance(block, tree.Finalization) else ():
                word = line.span.text.split(None, 1)[0]
                found.setdefault(word, Origin(file=line.span.source.name, line=line.span.line))
    return found


def _place(origin: Origin | None) -> str:
    return str(origin) if origin else "no file"


def _block(keyword: str, lines: list[Line]) -> list[str]:
    return [f"{keyword} {{", *_aligned(lines), "}"] if lines else []


def _aligned(lines: list[Line], indent: str = "  ") -> list[str]:
    """The lines with their origins as comments in one column, as far as the lines are short."""
    column = max((len(text) for text, _ in lines if len(text) <= 80), default=0)
    return [f"{indent}{text:<{column}}  # {place}" for text, place in lines]


# ---- the statements


def _limits(policy: Policy) -> list[Line]:
    """A base's block of an agent may go beyond a limit that was locked later; one file cannot say both."""
    blocks = [limit for rules in policy.agent for limit in rules.limits]
    kept = [limit.locked and not any(_loosens(own, limit) for own in blocks) for limit in policy.limits]
    lines = zip(policy.limits, kept, strict=True)
    return [(_limit(limit, "locked" if locked else ""), _place(limit.origin)) for limit, locked in lines]


def _limit(limit: Limit, modifier: str = "") -> str:
    words = [modifier] if modifier else []
    words += [limit.resource, _quantity(limit.resource, limit.max)]
    if limit.scope and limit.scope != RESOURCES[limit.resource].scope:
        words.append(f"per {limit.scope}")
    if limit.reserve:
        words.append(f"reserve {_quantity(limit.resource, limit.reserve)}")
    if limit.atomic:
        words.append("atomic")
    if limit.counting_approvals:
        words.append("counting approvals")
    words += [f"then {_step(limit.resource, step)}" for step in limit.then]
    return " ".join(words)


def _quantity(resource: str, value: int | None) -> str:
    return text_of(value, RESOURCES[resource].unit)


def _step(resource: str, step: Step) -> str:
    match step:
        case Stop():
            return "stop"
        case Extend(by=by):
            return f"extend {amount(resource, by)} once"
        case Finalize(text=text, using=using):
            return _final(text, using)
        case Ask(up_to=up_to, times=times):
            most = "" if up_to is None else f" up to {amount(resource, up_to)}"
            return f"ask{most}{'' if times == 1 else f' times {times}'}"
        case Consult(name=name):
            return f"consult {name}"


def _final(text: str | None, using: str | None) -> str:
    return f"finalize using {using}" if using else f"finalize {quote(text)}" if text else "finalize"


# ---- agents


def _tree(agents: Agents | None) -> list[Line]:
    if agents is None:
        return []
    lines = []
    for limit in agents.limits:
        most = "unlimited" if limit.max is None else str(limit.max)
        lines.append((f"{'locked ' if limit.locked else ''}{limit.resource} {most}", _place(limit.origin)))
    for word, names in (("share", agents.share), ("carve", agents.carve)):
        lines += [(f"{word} {', '.join(names)}", _place(agents.origin))] if names else []
    return lines


def _agent(rules: AgentRules, policy: Policy) -> list[str]:
    lines = [(_limit(limit, _modifier(limit, policy)), _place(limit.origin)) for limit in rules.limits]
    lines += [(_threshold(t), _place(t.origin)) for t in rules.thresholds]
    lines += [(_failure(rule), _place(rule.origin)) for rule in rules.failures]
    lines += [(_tool(rule), _place(rule.origin)) for rule in rules.tools]
    return _block(f"agent {quote(rules.name)}", lines)


def _modifier(limit: Limit, policy: Policy) -> str:
    loosens = any(_loosens(limit, other) for other in policy.limits)
    return "override" if loosens else "locked" if limit.locked else ""


def _loosens(limit: Limit, other: Limit) -> bool:
    """Does a limit of an agent take the place of the policy's, and allow more?"""
    if limit.id != other.id or other.scope not in ("run", None):
        return False
    uncounted = other.counting_approvals and not limit.counting_approvals
    pairs = ((limit.max, other.max), (_most(limit), _most(other)))
    return uncounted or any(b is not None and (a is None or a > b) for a, b in pairs)


def _most(limit: Limit) -> int | None:
    """The most that can ever be used of it."""
    if limit.max is None:
        return None
    extensions = [min(step.by, limit.max) for step in limit.then if isinstance(step, Extend)]
    grants = [(step.up_to or limit.max) * step.times for step in limit.then if isinstance(step, Ask)]
    return limit.max + sum(extensions) + sum(grants)


# ---- the final call, thresholds


def _finalization(policy: Policy, places: Mapping[str, Origin]) -> list[Line]:
    final = policy.finalization
    mode = f"mode {final.mode}"
    if final.using:
        mode += f" using {final.using}"
    elif final.text:
        mode += f" {quote(final.text)}"
    empty = f"empty retry {final.empty_retries}" if final.empty_retries else "empty stop"
    lines = [mode, f"tools {final.tools}", empty]
    if final.prefer:
        # One name alone is preferred over all others; the language wants a second one, the first of those.
        lines.insert(0, f"prefer {' over '.join(final.order[: max(2, len(final.prefer))])}")
    return [(line, _final_place(line, places)) for line in lines]


def _final_place(line: str, places: Mapping[str, Origin]) -> str:
    found = places.get(line.split(None, 1)[0])
    return str(found) if found else _DEFAULT


def _threshold(threshold: Threshold) -> str:
    words = [f"at {threshold.percent}% of {threshold.resource} {threshold.action}"]
    words += [quote(threshold.text)] if threshold.text is not None else []
    words += [client_text(threshold.client)] if threshold.client is not None else []
    return " ".join(words)


# ---- failures and breakers


def _failure(rule: FailureRule) -> str:
    steps = " then ".join(_failure_step(step) for step in rule.then)
    return f"on llm_failure {', '.join(rule.reasons)} {steps}"


def _failure_step(step: FailureStep) -> str:
    match step:
        case Stop():
            return "stop"
        case Finalize(text=text, using=using):
            return _final(text, using)
        case Consult(name=name):
            return f"consult {name}"
        case Retry():
            return _retry(step)
        case Fallback(clients=clients, scope=scope, ms=ms):
            lasting = {"run": "", "call": " for call", "time": f" for {duration_text(ms or 0)}"}[scope]
            return f"fallback {' -> '.join(map(client_text, clients))}{lasting}"


def _retry(step: Retry) -> str:
    waits = f" every {duration_text(step.least)}..{duration_text(step.most)}{' jitter' if step.jitter else ''}"
    usual = (step.least, step.most, step.jitter) == (*DEFAULT_RETRY_MS, True)
    return f"retry {step.times}{'' if usual else waits}"


def _breaker(breaker: Breaker) -> list[str]:
    lines = [f"  {line}" for line in _breaker_lines(breaker)]
    return [f"breaker {quote(breaker.glob)} {{  # {_place(breaker.origin)}", *lines, "}"]


def _breaker_lines(breaker: Breaker) -> list[str]:
    lines = [f"trip {_trip(detector)}" for detector in breaker.trips]
    probe = f" probe {breaker.probe}" if breaker.probe else ""
    lines.append(f"reset after {duration_text(breaker.reset)}{probe}" if breaker.reset else "reset never")
    if breaker.when_open == "finalize":
        lines.append(f"when_open {_final(breaker.text, breaker.using)}")
    else:
        lines.append(f"when_open {breaker.when_open}{f' {quote(breaker.text)}' if breaker.text else ''}")
    lines.append(f"count denied as {breaker.count_denied}")
    lines += ["per args"] if breaker.per_args else []
    lines.append(f"apply {breaker.apply}")
    return lines


def _trip(detector: Detector) -> str:
    match detector.kind:
        case "failure_rate":
            return f"failure_rate {detector.percent}% of {detector.n}"
        case "slow":
            return f"slow {duration_text(detector.ms or 0)} of {detector.n}"
        case kind:
            return f"{kind} {detector.n}"


def _tools(rules: tuple[ToolRule, ...]) -> list[str]:
    lines = _aligned([(_tool(rule), _place(rule.origin)) for rule in rules], indent="")
    if any(rule.allow for rule in rules) and len({rule.base for rule in rules}) > 1:
        lines.insert(0, "# an `allow` lifts only what the file it comes from denies or asks about")
    return lines


def _tool(rule: ToolRule) -> str:
    words = [f"tool {quote(rule.glob)}"]
    if rule.allow:
        words.append("allow")
    if rule.deny:
        words.append(f"deny {quote(rule.deny_text)}" if rule.deny_text else "deny")
    if rule.limit is not None:
        words.append(f"limit {rule.limit} {quote(rule.limit_text)}" if rule.limit_text else f"limit {rule.limit}")
    if rule.timeout is not None:
        words.append(f"timeout {duration_text(rule.timeout)}")
    if rule.ask:
        words.append(f"ask within {duration_text(rule.ask_within)}" if rule.ask_within is not None else "ask")
    if rule.retry is not None:
        words.append(_retry(rule.retry))
    return " ".join(words)


def _prices(policy: Policy) -> list[Line]:
    lines = []
    for price in policy.prices:
        cached = "" if price.cached is None else f" cached {money_text(price.cached)}"
        text = f"{quote(price.model)} input {money_text(price.input)}{cached} output {money_text(price.output)} per 1M"
        lines.append((text, _place(price.origin)))
    return lines
