"""Random policies, and how to write one as text in many ways that all mean the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from engine.core.policy import Policy
from engine.core.vocabulary import PREFER_ORDER, RESOURCES
from policy_lang.quantities import MAX, duration_text, money_text

COUNTS = st.one_of(
    st.integers(0, 20), st.sampled_from([1_000, 200_000, 1_500_000, 3_000_000_000, MAX]), st.integers(0, MAX)
)
_PLACEHOLDERS = ("{left}", "{used}", "{limit}", "{tool}", "{resource}", "{{", "}")
PIECES = st.sampled_from([*_PLACEHOLDERS, '"', "\\", "\n", "\t", "é", "日本", "a", " #", "then", "%"])
TEXTS = st.lists(PIECES, min_size=1, max_size=6).map("".join).filter(lambda text: text.strip())
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}(-[a-z0-9]{1,3})?", fullmatch=True).filter(
    lambda name: name not in {"then", "stop", "finalize", "retry", "fallback", "extend", "reply", "using", "unlimited"}
)
GLOBS = st.from_regex(r"[a-z_*?]{1,10}", fullmatch=True)


@st.composite
def _ladders(draw: st.DrawFn, resource: str, most: int | None) -> list[dict[str, Any]]:
    known, steps = RESOURCES[resource], []
    if resource == "attempt_wall":
        return []
    if known.extendable and draw(st.booleans()):
        steps.append({"do": "extend", "by": draw(COUNTS.filter(bool))})
    for _ in range(draw(st.integers(0, 2))):
        steps.append({"do": "finalize", "using": draw(NAMES)})
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
        "locked": draw(st.booleans()),
        "then": then,
    }


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
    return rule


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy that this version can carry out."""
    limits = [draw(_limits(key)) for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=6))]
    limited = sorted({limit["resource"] for limit in limits if limit["max"] is not None} - {"attempt_wall"})
    thresholds: list[dict[str, Any]] = []
    if limited:
        for resource in draw(st.lists(st.sampled_from(limited), max_size=3, unique=True)):
            text = draw(st.one_of(st.none(), TEXTS))
            action = "warn" if text is None else "tell"
            thresholds.append(
                {"percent": draw(st.integers(1, 99)), "resource": resource, "action": action, "text": text}
            )
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
            "thresholds": thresholds,
            "tools": draw(st.lists(_tools(), max_size=4)),
            "prices": prices,
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
        unit = RESOURCES[limit.resource].unit
        words = []
        for step in limit.then:
            if step.do == "stop":
                words.append("then stop")
            elif step.do == "extend":
                words.append(f"then extend {self._name(_amount(step.by, unit))} once")
            elif step.using:
                words.append(f"then finalize using {step.using}")
            else:
                words.append(f"then finalize {self._name(literal(step.text)) if step.text else ''}".rstrip())
        between = self.rng.choice([" ", "\n      ", "  # why\n\n   # really\n  "])
        return [between.join(["", *words]).lstrip(" ")] if words else []

    def _limit(self, limit: Any) -> str:
        unit = RESOURCES[limit.resource].unit
        options = []
        if limit.scope is not None and (limit.scope != RESOURCES[limit.resource].scope or self.rng.random() < 0.5):
            options.append(f"per {limit.scope}")
        if limit.reserve:
            options.append(f"reserve {self._name(_amount(limit.reserve, unit))}")
        if limit.resource == "tool_calls" and (limit.atomic or self.rng.random() < 0.5):
            options.append("atomic" if limit.atomic else "partial")
        self.rng.shuffle(options)
        head = ["locked"] if limit.locked else []
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
        self.rng.shuffle(clauses)
        return self._line("tool", literal(rule.glob), *clauses)

    def _price(self, price: Any) -> str:
        cached = f"cached {money_text(price.cached)}" if price.cached is not None else ""
        fresh, output = f"input {money_text(price.input)}", f"output {money_text(price.output)}"
        return self._line(literal(price.model), fresh, cached, output, "per 1M")

    def _threshold(self, threshold: Any) -> str:
        text = self._name(literal(threshold.text)) if threshold.text else ""
        return self._line(f"at {self._name(f'{threshold.percent}%')} of {threshold.resource}", threshold.action, text)

    def write(self, policy: Policy) -> str:
        statements = [self._block("limits", [self._limit(limit) for limit in policy.limits])]
        statements.append(self._finalization(policy.finalization))
        statements += [self._threshold(threshold) for threshold in policy.thresholds]
        statements += [self._tool(rule) for rule in policy.tools]
        statements.append(self._block("prices", [self._price(price) for price in policy.prices]))
        statements += self.names
        self.rng.shuffle(statements)
        blank: Callable[[], str] = lambda: self.rng.choice(["\n", "\n\n", "\n   \n# a comment\n"])  # noqa: E731
        text = f"policy {literal(policy.name)} lang 1" + "".join(blank() + statement for statement in statements)
        text = self.rng.choice(["", "\n\n", "# first\n"]) + text + self.rng.choice(["", "\n", "\n\n# last"])
        return text.replace("\n", "\r\n") if self.rng.random() < 0.2 else text
