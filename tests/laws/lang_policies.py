"""Random policies, and how to write one as text in many ways that all mean the same."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from engine.core.policy import Policy, TreeResourceName
from engine.core.vocabulary import POOLABLE, PREFER_ORDER, REASONS, RESOURCES
from policy_lang.quantities import MAX, duration_text, money_text

COUNTS = st.one_of(
    st.integers(0, 20), st.sampled_from([1_000, 200_000, 1_500_000, 3_000_000_000, MAX]), st.integers(0, MAX)
)
_PLACEHOLDERS = ("{left}", "{used}", "{limit}", "{tool}", "{resource}", "{{", "}")
PIECES = st.sampled_from([*_PLACEHOLDERS, '"', "\\", "\n", "\t", "é", "日本", "a", " #", "then", "%"])
TEXTS = st.lists(PIECES, min_size=1, max_size=6).map("".join).filter(lambda text: text.strip())
RESERVED = {"then", "stop", "finalize", "retry", "fallback", "extend", "reply"}
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}(-[a-z0-9]{1,3})?", fullmatch=True).filter(
    lambda name: name not in {*RESERVED, "using", "unlimited"}
)
GLOBS = st.from_regex(r"[a-z_*?]{1,10}", fullmatch=True)


@st.composite
def _ladders(draw: st.DrawFn, resource: str, most: int | None) -> list[dict[str, Any]]:
    known, steps = RESOURCES[resource], []
    if resource == "attempt_wall":
        return []
    if known.extendable and draw(st.booleans()):
        steps.append({"do": "extend", "by": draw(COUNTS.filter(bool))})
    if known.askable and draw(st.booleans()):
        more = COUNTS.filter(bool)
        up_to = draw(more if most == 0 else st.one_of(st.none(), more))
        steps.append({"do": "ask", "up_to": up_to, "times": draw(st.integers(1, 3))})
    for _ in range(draw(st.integers(0, 2))):
        steps.append({"do": "finalize", "using": draw(NAMES)})
        if resource != "wall" and draw(st.booleans()):
            steps.append({"do": "consult", "name": draw(NAMES)})
    end = draw(st.sampled_from(["", "stop", "finalize", "text"]))
    if end == "stop":
        steps.append({"do": "stop"})
    elif end:
        steps.append({"do": "finalize", "text": draw(TEXTS) if end == "text" else None})
    return steps


@st.composite
def _limits(draw: st.DrawFn, key: tuple[str, str | None]) -> dict[str, Any]:
    resource, scope = key
    known = RESOURCES[resource]
    least = 1 if resource == "attempt_wall" else 0
    most = draw(st.one_of(st.none(), COUNTS.filter(lambda n: n >= least)))
    then = draw(_ladders(resource, most))
    reserve = 0
    if known.reservable and (most is None or most > 0):
        reserve = draw(st.integers(0, MAX if most is None else most))
    if known.reservable and most is not None and not reserve:
        then = [step for step in then if step["do"] != "finalize"]
    return {
        "resource": resource,
        "scope": scope,
        "max": most,
        "reserve": reserve,
        "atomic": resource == "tool_calls" and draw(st.booleans()),
        "counting_approvals": resource == "wall" and draw(st.booleans()),
        "locked": draw(st.booleans()),
        "then": then,
    }


CLIENTS = st.one_of(NAMES, st.sampled_from(["stop", "vendor/model-3.5", 'a "b"', "using", "unlimited", "then"]))
WAITS = st.integers(0, 600_000)


@st.composite
def _retries(draw: st.DrawFn) -> dict[str, Any]:
    made: dict[str, Any] = {"do": "retry", "times": draw(st.integers(1, 5))}
    if draw(st.booleans()):
        made["least"], made["most"] = sorted(draw(st.tuples(WAITS, WAITS)))
        made["jitter"] = draw(st.booleans())
    return made


@st.composite
def _failure_rules(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rules for some reasons, each reason in one rule only."""
    reasons = draw(st.lists(st.sampled_from(sorted(REASONS)), unique=True, max_size=5))
    rules: list[dict[str, Any]] = []
    while reasons:
        take = draw(st.integers(1, len(reasons)))
        rules.append({"reasons": reasons[:take], "then": draw(_failure_ladders())})
        reasons = reasons[take:]
    if rules and draw(st.booleans()):
        rules[0]["reasons"].append("*")
    elif draw(st.booleans()):
        rules.append({"reasons": ["*"], "then": draw(_failure_ladders())})
    return rules


@st.composite
def _failure_ladders(draw: st.DrawFn) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [draw(_retries()) for _ in range(draw(st.integers(0, 2)))]
    chain = draw(st.lists(CLIENTS, unique=True, max_size=3))
    if chain:
        scope = draw(st.sampled_from(["run", "call", "time"]))
        ms = draw(st.integers(1, 10**7)) if scope == "time" else None
        steps.append({"do": "fallback", "clients": chain, "scope": scope, "ms": ms})
    if draw(st.booleans()):
        steps.append({"do": "consult", "name": draw(NAMES)})
    end = draw(st.sampled_from(["", "stop", "finalize", "text", "using"]))
    if end == "stop" or (not steps and not end):
        steps.append({"do": "stop"})
    elif end:
        words = {"text": {"text": draw(TEXTS)}, "using": {"using": draw(NAMES)}, "finalize": {}}[end]
        steps.append({"do": "finalize", **words})
    return steps


@st.composite
def _detectors(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    n = 2 * draw(st.integers(2, 32)) if kind == "alternating" else draw(st.integers(1, 64))
    made: dict[str, Any] = {"kind": kind, "n": n}
    if kind == "failure_rate":
        made["percent"] = draw(st.integers(1, 100))
    if kind == "slow":
        made["ms"] = draw(st.integers(1, 10**7))
    return made


KINDS = ["same_args", "alternating", "failures", "failure_rate", "same_result", "slow"]


@st.composite
def _breakers(draw: st.DrawFn) -> dict[str, Any]:
    kinds = draw(st.lists(st.sampled_from(KINDS), unique=True, min_size=1, max_size=4))
    made: dict[str, Any] = {"glob": draw(GLOBS), "trips": [draw(_detectors(kind)) for kind in kinds]}
    if draw(st.booleans()):
        made["reset"] = draw(st.integers(1, 10**7))
        made["probe"] = draw(st.one_of(st.none(), st.integers(1, 5)))
    made["when_open"] = draw(st.sampled_from(["skip", "hide", "stop", "finalize"]))
    if made["when_open"] in ("skip", "finalize"):
        made["text"] = draw(st.one_of(st.none(), TEXTS))
    if made["when_open"] == "finalize" and made["text"] is None:
        made["using"] = draw(st.one_of(st.none(), NAMES))
    made["count_denied"] = draw(st.sampled_from(["nothing", "failure", "success"]))
    made["per_args"] = made["when_open"] != "hide" and draw(st.booleans())
    made["apply"] = draw(st.sampled_from(["round_end", "now"]))
    return made


KEYS = [(name, scope) for name, known in RESOURCES.items() for scope in (known.scopes or (None,))]


@st.composite
def _finalizations(draw: st.DrawFn) -> dict[str, Any]:
    made: dict[str, Any] = {
        "prefer": draw(
            st.one_of(st.just([]), st.lists(st.sampled_from(PREFER_ORDER), unique=True, min_size=2, max_size=4))
        ),
        "mode": draw(st.sampled_from(["proactive", "reactive"])),
        "tools": draw(st.sampled_from(["strip", "forbid"])),
        "empty_retries": draw(st.integers(0, 3)),
    }
    if made["mode"] == "reactive":
        made[draw(st.sampled_from(["text", "using"]))] = draw(NAMES)
    return made


@st.composite
def _tools(draw: st.DrawFn) -> dict[str, Any]:
    verdict = draw(st.sampled_from(["", "allow", "deny"]))
    rule = {"glob": draw(GLOBS), "allow": verdict == "allow", "deny": verdict == "deny"}
    if rule["deny"]:
        rule["deny_text"] = draw(st.one_of(st.none(), TEXTS))
    if not verdict or draw(st.booleans()):
        rule["limit"] = draw(COUNTS)
        rule["limit_text"] = draw(st.one_of(st.none(), TEXTS))
    if draw(st.booleans()):
        rule["timeout"] = draw(COUNTS.filter(bool))
    if draw(st.booleans()):
        rule["ask"], rule["ask_within"] = True, draw(st.one_of(st.none(), COUNTS.filter(bool)))
    if draw(st.booleans()):
        rule["retry"] = draw(_retries())
    return rule


TREE: tuple[TreeResourceName, ...] = ("children", "live_children", "depth", "concurrent")


@st.composite
def _trees(draw: st.DrawFn) -> dict[str, Any]:
    """An `agents` block: some limits, some pools shared and others carved."""
    limits = [
        {
            "resource": resource,
            "max": draw(st.one_of(st.none(), COUNTS.filter(lambda n: n > 0) if resource == "concurrent" else COUNTS)),
            "locked": draw(st.booleans()),
        }
        for resource in draw(st.lists(st.sampled_from(TREE), unique=True, max_size=4))
    ]
    pools = draw(st.lists(st.sampled_from(POOLABLE), unique=True, max_size=4))
    cut = draw(st.integers(0, len(pools)))
    return {"limits": limits, "share": pools[:cut], "carve": pools[cut:]}


@st.composite
def _agents(draw: st.DrawFn, name: str, policy: list[dict[str, Any]]) -> dict[str, Any]:
    """The block of one agent in a policy with these limits."""
    locked = {(limit["resource"], limit["scope"]) for limit in policy if limit["locked"]}
    keys = [key for key in KEYS if key[1] != "thread" and key not in locked]
    limits = [draw(_limits(key)) for key in draw(st.lists(st.sampled_from(keys), unique=True, min_size=1, max_size=3))]
    own = {(limit["resource"], limit["scope"]) for limit in limits}
    inherited = [limit for limit in policy if limit["scope"] in ("run", None)]
    inherited = [limit for limit in inherited if (limit["resource"], limit["scope"]) not in own]
    made = {"name": name, "limits": limits, "failures": draw(_failure_rules())}
    made["thresholds"] = draw(_thresholds([*limits, *inherited]))
    return {**made, "tools": draw(st.lists(_tools(), max_size=2))}


@st.composite
def _thresholds(draw: st.DrawFn, limits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    limited = sorted({limit["resource"] for limit in limits if limit["max"] is not None} - {"attempt_wall"})
    made: list[dict[str, Any]] = []
    for resource in draw(st.lists(st.sampled_from(limited), max_size=3, unique=True)) if limited else ():
        action = draw(st.sampled_from(["warn", "tell", "use"]))
        words = {"tell": {"text": draw(TEXTS)}, "use": {"client": draw(CLIENTS)}, "warn": {}}[action]
        made.append({"percent": draw(st.integers(1, 99)), "resource": resource, "action": action, **words})
    return made


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy that this version can carry out."""
    limits = [draw(_limits(key)) for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=6))]
    models = draw(st.lists(st.from_regex(r"[a-z/.-]{1,8}", fullmatch=True), unique=True, min_size=1, max_size=3))
    prices = [
        {"model": model, "input": draw(COUNTS), "output": draw(COUNTS), "cached": draw(st.one_of(st.none(), COUNTS))}
        for model in models
    ]
    return Policy.model_validate(
        {
            "name": draw(TEXTS),
            "limits": limits,
            "finalization": draw(_finalizations()),
            "thresholds": draw(_thresholds(limits)),
            "failures": draw(_failure_rules()),
            "breakers": draw(st.lists(_breakers(), max_size=3, unique_by=repr)),
            "tools": draw(st.lists(_tools(), max_size=4)),
            "prices": prices,
            "agents": draw(st.one_of(st.none(), _trees())),
            "agent": [draw(_agents(name, limits)) for name in draw(st.lists(TEXTS, unique=True, max_size=2))],
        }
    )


# ---- writing


def literal(text: str) -> str:
    for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(char, escaped)
    return f'"{text}"'


def _amount(value: int | None, unit: str) -> str:
    if value is None:
        return "unlimited"
    return {"count": str, "money": money_text, "duration": duration_text}[unit](value)


class Writer:
    """Writes a policy as text. A random source decides order, blanks, comments, and what gets a name."""

    def __init__(self, rng: random.Random, named: bool = True) -> None:
        self.rng = rng
        self.named = named
        self.names: list[str] = []

    def _name(self, value: str, keyword: str = "let") -> str:
        """The value itself, or a name defined for it."""
        if not self.named or self.rng.random() < 0.6:
            return value
        name = f"name_{len(self.names)}"
        self.names.append(f"{self.rng.choice([keyword, 'param'])} {name} = {value}")
        return name

    def _gap(self) -> str:
        return self.rng.choice([" ", "  ", "\t", "     "])

    def _line(self, *words: str) -> str:
        comment = self.rng.choice(["", "", "", ' # a remark { " then', "\t#"])
        return self._gap().join(word for word in words if word) + comment

    def _steps(self, limit: Any) -> list[str]:
        words = [f"then {self._step(step, RESOURCES[limit.resource].unit)}" for step in limit.then]
        return [self._between().join(["", *words]).lstrip(" ")] if words else []

    def _between(self) -> str:
        return self.rng.choice([" ", "\n      ", "  # why\n\n   # really\n  "])

    def _step(self, step: Any, unit: str = "count") -> str:
        match step.do:
            case "stop":
                return "stop"
            case "extend":
                return f"extend {self._name(_amount(step.by, unit))} once"
            case "ask":
                most = f" up to {self._name(_amount(step.up_to, unit))}" if step.up_to else ""
                return f"ask{most}{f' times {self._name(str(step.times))}' if step.times > 1 else ''}"
            case "consult":
                return f"consult {step.name}"
            case "retry":
                return self._retry(step)
            case "fallback":
                return self._fallback(step)
        return self._finalize(step)

    def _finalize(self, step: Any) -> str:
        if step.using:
            return f"finalize using {step.using}"
        return f"finalize {self._name(literal(step.text)) if step.text else ''}".rstrip()

    def _retry(self, step: Any) -> str:
        usual = (step.least, step.most, step.jitter) == (1_000, 30_000, True)
        if usual and self.rng.random() < 0.7:
            return f"retry {self._name(str(step.times))}"
        waits = f"every {self._name(duration_text(step.least))}..{duration_text(step.most)}"
        return f"retry {self._name(str(step.times))} {waits}{' jitter' if step.jitter else ''}"

    def _client(self, name: str) -> str:
        plain = re.fullmatch("[a-z_][a-z0-9_]*", name) and name not in RESERVED
        return name if plain and self.rng.random() < 0.8 else literal(name)

    def _fallback(self, step: Any) -> str:
        lasting = {"run": self.rng.choice(["", " for run"]), "call": " for call"}.get(step.scope)
        chain = " -> ".join(self._client(name) for name in step.clients)
        return f"fallback {chain}{lasting if lasting is not None else f' for {self._name(duration_text(step.ms))}'}"

    def _failure(self, rule: Any) -> str:
        reasons = list(rule.reasons)
        self.rng.shuffle(reasons)
        steps = f"{self._between()}then ".join(self._step(step) for step in rule.then)
        return self._line(f"on llm_failure {', '.join(reasons)}", steps)

    def _breaker(self, breaker: Any) -> str:
        lines = [f"trip {self._detector(detector)}" for detector in breaker.trips]
        if breaker.reset:
            probe = f" probe {self._name(str(breaker.probe))}" if breaker.probe else ""
            lines.append(f"reset after {self._name(duration_text(breaker.reset))}{probe}")
        if breaker.when_open == "finalize":
            lines.append(f"when_open {self._finalize(breaker)}")
        else:
            lines.append(f"when_open {breaker.when_open} {self._name(literal(breaker.text)) if breaker.text else ''}")
        lines.append(f"count denied as {breaker.count_denied}")
        lines += ["per args"] if breaker.per_args else []
        lines.append(f"apply {breaker.apply}")
        return self._block(f"breaker {literal(breaker.glob)}", lines)

    def _detector(self, detector: Any) -> str:
        n = self._name(str(detector.n))
        if detector.kind == "failure_rate":
            return f"failure_rate {self._name(f'{detector.percent}%')} of {n}"
        if detector.kind == "slow":
            return f"slow {self._name(duration_text(detector.ms))} of {n}"
        return f"{detector.kind} {n}"

    def _limit(self, limit: Any, over: bool = False) -> str:
        """``over``: it takes the place of a limit of the policy, and may be looser."""
        unit = RESOURCES[limit.resource].unit
        options = []
        if limit.scope is not None and (limit.scope != RESOURCES[limit.resource].scope or self.rng.random() < 0.5):
            options.append(f"per {limit.scope}")
        if limit.reserve:
            options.append(f"reserve {self._name(_amount(limit.reserve, unit))}")
        if limit.resource == "tool_calls" and (limit.atomic or self.rng.random() < 0.5):
            options.append("atomic" if limit.atomic else "partial")
        if limit.counting_approvals:
            options.append("counting approvals")
        self.rng.shuffle(options)
        head = ["override"] if over else ["locked"] if limit.locked else []
        line = self._gap().join([*head, limit.resource, self._name(_amount(limit.max, unit)), *options])
        steps = self._steps(limit)
        return f"{line} {steps[0]}" if steps else self._line(line)

    def _block(self, header: str, lines: list[str]) -> str:
        self.rng.shuffle(lines)
        indent = self.rng.choice(["  ", "\t", "      "])
        blank = self.rng.choice(["\n", "\n", "\n\n", "\n# between\n\n"])
        return f"{header} {{" + "".join(f"{blank}{indent}{line}" for line in lines) + "\n}"

    def _finalization(self, final: Any) -> str:
        lines = [f"tools {final.tools}"]
        lines.append(f"empty retry {final.empty_retries}" if final.empty_retries else "empty stop")
        if final.prefer:
            lines.append("prefer " + " over ".join(final.prefer))
        text = literal(final.text) if final.text else f"using {final.using}" if final.using else ""
        lines.append(f"mode {final.mode} {text}".rstrip())
        return self._block("finalization", lines)

    def _tool(self, rule: Any) -> str:
        clauses = ["allow"] if rule.allow else []
        if rule.deny:
            clauses.append(f"deny {self._name(literal(rule.deny_text)) if rule.deny_text else ''}".rstrip())
        if rule.limit is not None:
            text = self._name(literal(rule.limit_text)) if rule.limit_text else ""
            clauses.append(f"limit {self._name(str(rule.limit))} {text}".rstrip())
        if rule.timeout is not None:
            clauses.append(f"timeout {self._name(duration_text(rule.timeout))}")
        if rule.ask:
            within = f"within {self._name(duration_text(rule.ask_within))}" if rule.ask_within else ""
            clauses.append(f"ask {within}".rstrip())
        if rule.retry is not None:
            clauses.append(self._retry(rule.retry))
        self.rng.shuffle(clauses)
        return self._line("tool", literal(rule.glob), *clauses)

    def _tree(self, agents: Any) -> str:
        lines = []
        for limit in agents.limits:
            words = ["locked"] if limit.locked else []
            lines.append(self._line(*words, limit.resource, self._name(_amount(limit.max, "count"))))
        for word, names in (("share", agents.share), ("carve", agents.carve)):
            lines += [self._line(word, ", ".join(names))] if names else []
        return self._block("agents", lines)

    def _agent(self, rules: Any, policy: Policy) -> str:
        replaced = {limit.id for limit in policy.limits if limit.scope in ("run", None)}
        lines = [self._limit(limit, limit.id in replaced) for limit in rules.limits]
        lines += [self._threshold(threshold) for threshold in rules.thresholds]
        lines += [self._failure(rule) for rule in rules.failures]
        lines += [self._tool(rule) for rule in rules.tools]
        return self._block(f"agent {literal(rules.name)}", lines)

    def _price(self, price: Any) -> str:
        cached = f"cached {money_text(price.cached)}" if price.cached is not None else ""
        fresh, output = f"input {money_text(price.input)}", f"output {money_text(price.output)}"
        return self._line(literal(price.model), fresh, cached, output, "per 1M")

    def _threshold(self, threshold: Any) -> str:
        text = self._name(literal(threshold.text)) if threshold.text else ""
        text = self._client(threshold.client) if threshold.client else text
        return self._line(f"at {self._name(f'{threshold.percent}%')} of {threshold.resource}", threshold.action, text)

    def write(self, policy: Policy) -> str:
        statements = [self._block("limits", [self._limit(limit) for limit in policy.limits])]
        statements.append(self._finalization(policy.finalization))
        statements += [self._threshold(threshold) for threshold in policy.thresholds]
        statements += [self._failure(rule) for rule in policy.failures]
        statements += [self._breaker(breaker) for breaker in policy.breakers]
        statements += [self._tool(rule) for rule in policy.tools]
        statements += [self._tree(policy.agents)] if policy.agents else []
        statements += [self._agent(rules, policy) for rules in policy.agent]
        statements.append(self._block("prices", [self._price(price) for price in policy.prices]))
        statements += self.names
        self.rng.shuffle(statements)
        blank: Callable[[], str] = lambda: self.rng.choice(["\n", "\n\n", "\n   \n# a comment\n"])  # noqa: E731
        text = f"policy {literal(policy.name)} lang 1" + "".join(blank() + statement for statement in statements)
        text = self.rng.choice(["", "\n\n", "# first\n"]) + text + self.rng.choice(["", "\n", "\n\n# last"])
        return text.replace("\n", "\r\n") if self.rng.random() < 0.2 else text
