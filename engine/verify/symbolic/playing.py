"""Numbers that refute a promise about amounts, played on the production ``step``: only what happens there is shown.

The run is put where the numbers say (so much used, the ladder there), in a policy of that one limit with those numbers;
then a call is asked for, answered, or reported on. ``play`` says in words what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.plan import Plan, plans_of
from engine.core.messages import Usage
from engine.core.policy import Extend, Policy, Price
from engine.core.state import Book, BookExtra, Pools, Spent, State, Used
from engine.core.step import compile
from engine.verify.symbolic.amounts import Answer, Question
from engine.verify.symbolic.subject import MODEL

_USED = {
    "tokens": lambda used: used.tokens,
    "input_tokens": lambda used: used.input_tokens,
    "output_tokens": lambda used: used.output_tokens,
    "cost": lambda used: used.cost,
}


@dataclass(frozen=True, slots=True)
class Shown:
    """``words`` say what happened; ``broken``: it is not what was promised."""

    broken: bool
    words: str


def play(policy: Policy, answer: Answer) -> Shown:
    """Play what refutes the promise."""
    assert answer.question is not None
    if answer.promise == "charged":
        return _reported(policy, answer.question, answer.numbers)
    if answer.promise == "threshold":
        return _crossed(answer, answer.numbers)
    assert answer.plan is not None
    table = _Table(policy, answer.plan, answer.question, answer.numbers)
    match answer.promise:
        case "answer":
            return table.answered()
        case "bound":
            return table.bounded()
        case "overshoot":
            return table.over()
        case _:
            return table.admitted()


class _Table:
    """One limit with numbers, and a run of it."""

    def __init__(self, policy: Policy, plan: Plan, question: Question, numbers: Mapping[str, int]) -> None:
        self.question, self.n = question, numbers
        self.policy = alone(policy, plan, numbers, question.price)
        (self.plan,) = plans_of(self.policy)
        self.compiled = compile(self.policy, reference=True)

    def state(self, more: Usage = Usage(), later: int = 0) -> State:  # noqa: B008 - a frozen record
        """A run that has used what the numbers say, and ``more``."""
        n = self.n
        before = Used(input_tokens=n["input_before"], output_tokens=n["output_before"], cost=n["cost_before"])
        start = e.RunStarted(n["began"], "r", thread="t", thread_used=before)
        state, _ = self.compiled.step(self.compiled.initial, start)
        values = list(state.vars)
        known = {self.plan.step: self.question.place, self.plan.granted: n["granted"]}
        known[self.plan.extended] = self.question.extended
        for place, variable in enumerate(self.compiled.machine.variables):
            values[place] = known.get(variable.name, values[place])
        spent = Spent(n["input"] + more.input, n["output"] + more.output, 0, 0, 0, n["cost"] + later)
        pools = Pools(others=((self.plan.limit.id, n["others"]),))
        return structs.replace(state, vars=tuple(values), book=Book(state.book.run, spent, BookExtra(pools=pools)))

    def ask(self, state: State, at: int) -> tuple[State, d.AnyDecision]:
        request = e.CallRequested(at, "c1", model=MODEL, input_tokens=self.n["size"])
        return self.compiled.step(state, request)

    @property
    def left(self) -> int:
        """Added up by hand: what the code says may be what is wrong."""
        n, limit = self.n, self.plan.limit
        grown = n["granted"] if self.plan.question() else 0
        grown += min(n["extension"], n["maximum"]) if self.question.extended else 0
        if self.plan.resource == "wall":
            return n["maximum"] + grown - (n["at"] - n["began"])
        parts = {"tokens": ("input", "output"), "input_tokens": ("input",), "output_tokens": ("output",)}
        names = parts.get(self.plan.resource, ("cost",))
        used = sum(n[name] for name in names)
        if limit.scope == "thread":
            used += sum(n[f"{name}_before"] for name in names)
        return n["maximum"] + grown - used - (0 if limit.scope == "run" else n["others"])

    def admitted(self) -> Shown:
        _, decision = self.ask(self.state(), self.n["at"])
        reserve = self.plan.limit.reserve if self.question.promise == "reserve" else 0
        room = self.left - reserve
        fits = self._needs() <= room
        called = isinstance(decision, d.Call)
        final = isinstance(decision, d.Call) and decision.final
        if self.question.promise == "reserve":
            broken = called and not final and not fits
        else:
            broken = called and not fits if self.question.final else fits and not called
        kind = "a call" if not called else "a final call" if final else "an ordinary call"
        happened = "admitted" if called else "refused"
        return Shown(broken, f"{self._where(room + reserve)}, {kind} of {self.n['size']} tokens is {happened}")

    def _needs(self) -> int:
        """Worked out by hand: the request, and one token of output."""
        size, price = self.n["size"], self.question.price
        if self.plan.resource == "tokens":
            return size + 1
        if self.plan.resource == "input_tokens":
            return max(1, size)
        if self.plan.resource == "cost" and price is not None:
            return max(1, -(-(price.input * size + price.output) // 1_000_000))
        return 1

    def _where(self, left: int) -> str:
        limit = self.plan.limit
        reserve = f", reserve {limit.reserve}" if limit.reserve else ""
        return f"with {limit.id} {limit.max}{reserve} and {left} left"

    def answered(self) -> Shown:
        first = self.state()
        _, decision = self.ask(first, self.n["at"])
        wall = self.plan.resource == "wall"
        more = Usage(self.n["more_input"], self.n["more_output"])
        at = self.n["at"] + (self.n["reply"] if wall else 0)
        _, refused = self.ask(self.state(more, 0 if wall else self.n["reply"]), at)
        ordinary = isinstance(decision, d.Call) and not decision.final
        words = f"{self._where(self.left)}, an ordinary call is admitted; its reply leaves nothing for a final one"
        return Shown(ordinary and not isinstance(refused, d.Call), words)

    def bounded(self) -> Shown:
        _, decision = self.ask(self.state(), self.n["at"])
        if not isinstance(decision, d.Call) or decision.final or decision.max_output is None:
            return Shown(False, "the call that was to be bounded is not ordinary")
        out, price, size = decision.max_output, self.question.price, self.n["size"]
        takes = {"tokens": size + out, "output_tokens": out}.get(self.plan.resource, 0)
        if price is not None and self.plan.resource == "cost":
            takes = -(-(price.input * size + price.output * out) // 1_000_000)
        words = f"{self._where(self.left)}, an ordinary call may answer with {out} tokens, which takes {takes}"
        return Shown(takes > self.left - self.plan.limit.reserve, words)

    def over(self) -> Shown:
        _, decision = self.ask(self.state(), self.n["at"])
        words = f"{self._where(self.left)}, one more call is admitted"
        return Shown(isinstance(decision, d.Call) and self.left < 1, words)


def alone(policy: Policy, plan: Plan, numbers: Mapping[str, int], price: Price | None) -> Policy:
    """A policy of that one limit, with these numbers."""
    wall = plan.resource == "wall"
    then = tuple(
        step.model_copy(update={"by": numbers["extension"]}) if isinstance(step, Extend) else step
        for step in plan.limit.then
        if not (wall and isinstance(step, Extend))
    )
    reserve = numbers["reserve"] if plan.limit.reserve else 0
    limit = plan.limit.model_copy(update={"max": numbers["maximum"], "reserve": reserve, "then": then})
    prices = () if price is None else (price.model_copy(update={"model": MODEL}),)
    nothing = {"thresholds": (), "failures": (), "breakers": (), "tools": (), "agents": None, "agent": (), "claims": ()}
    return policy.model_copy(update={**nothing, "limits": (limit,), "prices": prices})


def _reported(policy: Policy, question: Question, n: Mapping[str, int]) -> Shown:
    """Two reports of one attempt, the second larger or not."""
    prices = () if question.price is None else (question.price.model_copy(update={"model": MODEL}),)
    compiled = compile(policy.model_copy(update={"prices": prices, "limits": ()}), reference=True)
    state, _ = compiled.step(compiled.initial, e.RunStarted(0, "r"))
    state, _ = compiled.step(state, e.CallRequested(0, "c1", model=MODEL))
    reports = [Usage(n["reported_input"], n["reported_output"])]
    if question.place:
        reports.insert(0, Usage(n["charged_input"], n["charged_output"]))
    for usage in reports:
        state, _ = compiled.step(state, e.UsageReported(0, "c1", 1, usage))
    used = compiled.used(state)
    input, output = max(u.input for u in reports), max(u.output for u in reports)
    wrong = (used.input_tokens, used.output_tokens) != (input, output)
    if question.price is not None:
        wrong |= used.cost != -(-(question.price.input * input + question.price.output * output) // 1_000_000)
    told = " and then ".join(f"{u.input} + {u.output}" for u in reports)
    charged = f"{used.input_tokens} + {used.output_tokens} tokens and {used.cost} micro-dollars"
    return Shown(wrong, f"an attempt that reports {told} tokens is charged {charged}")


def _crossed(answer: Answer, n: Mapping[str, int]) -> Shown:
    """A run that has used so much asks for a call: is the threshold noted?"""
    assert answer.plan is not None
    assert answer.question is not None
    assert answer.question.threshold is not None
    threshold = answer.question.threshold
    numbers = {**n, "granted": 0, "reserve": 0}
    policy = alone(Policy(name="p"), answer.plan, numbers, None)
    larger = policy.limits[0].model_copy(update={"then": (), "scope": "run"})
    policy = policy.model_copy(update={"limits": (larger,), "thresholds": (threshold,)})
    compiled = compile(policy, reference=True)
    (plan,) = plans_of(policy)
    spent = {"input_tokens": Spent(n["input"]), "tokens": Spent(n["input"]), "output_tokens": Spent(output=n["input"])}
    state, _ = compiled.step(compiled.initial, e.RunStarted(0, "r"))
    book = Book(
        state.book.run, spent.get(plan.resource, Spent(cost=n["input"])), BookExtra(crossed=answer.question.place)
    )
    crossed, notes = compiled.core.thresholds.cross(state.vars, book, 0)
    reached = n["input"] * 100 >= threshold.percent * n["maximum"]
    due = reached and not answer.question.place
    words = f"at {threshold.percent}% of {plan.limit.id} {n['maximum']}: {n['input']} used, {len(notes)} notes"
    return Shown(len(notes) != int(due) or bool(crossed) != (reached or bool(answer.question.place)), words)


def reaching(policy: Policy, plan: Plan, maximum: int, largest: int) -> Shown:
    """The overshoot is as large as is said: with all but one used a call is admitted; its reply takes the largest."""
    numbers = dict.fromkeys(("began", "at", "size", "granted", "others", "input_before", "output_before"), 0)
    numbers |= {"cost_before": 0, "input": 0, "output": 0, "cost": 0, "maximum": maximum, "reserve": 0, "extension": 1}
    price = Price(model=MODEL, input=1_000_000, output=1_000_000) if plan.resource == "cost" else None
    key = {"tokens": "input", "input_tokens": "input", "output_tokens": "output", "cost": "cost"}[plan.resource]
    numbers[key] = maximum - 1
    table = _Table(policy, plan, Question("overshoot", True, len(plan.steps) if plan.step else 0, price=price), numbers)
    state, decision = table.ask(table.state(), 0)
    usage = Usage(output=largest) if plan.resource == "output_tokens" else Usage(largest)
    after, _ = table.compiled.step(state, e.ModelReplied(0, "c1", 1, text=True, usage=usage))
    used = _USED[plan.resource](table.compiled.used(after))
    admitted = isinstance(decision, d.Call)
    words = f"{plan.limit.id} {maximum}: with {maximum - 1} used a call is admitted, its reply takes {largest}"
    words = f"{words}: {used} used"
    return Shown(admitted and used == maximum - 1 + largest, words)
