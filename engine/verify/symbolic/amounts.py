"""What is promised about tokens, money and time, for all maxima, reserves and sizes: proved, or refuted with numbers.

``Amounts``, ``Thresholds`` and the charging of usage are run on symbols as they are (``executing``), and held against
what is meant (``subject``). Which calls are admitted with so much left is asked of the machine (``Admission``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from engine.core.amounts import Amounts
from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.machine.plan import ENOUGH, NOTHING, Plan, plans_of
from engine.core.messages import Usage
from engine.core.policy import Policy, Price, Threshold
from engine.core.state import Book, BookExtra, CallState, Run, Spent
from engine.core.thresholds import Thresholds
from engine.verify.prove import FREE
from engine.verify.symbolic.encoding import encode
from engine.verify.symbolic.executing import TooMuch, Way, term_of, unknown, ways
from engine.verify.symbolic.numbers import marked
from engine.verify.symbolic.solver import Asking, OutOfTime, Terms
from engine.verify.symbolic.subject import MODEL, SYMBOLS, Subject
from engine.verify.symbolic.terms import Term, Truth, either, eq, every, le, minus, no, plus, some, symbol
from engine.verify.whole_rounds import any_size
from engine.verify.world import around

Numbers = Mapping[str, int]

PROMISES = {
    "reserve": "an ordinary call is admitted only with more than the reserve left",
    "final": "a final call is admitted only with something left, and never refused while it would fit",
    "answer": "a final answer is possible after an ordinary call whose reply takes no more than the reserve",
    "bound": "a reply within the bounds that its call is given leaves the reserve",
    "overshoot": "used is at most the maximum - 1 + (attempts in flight) x (the largest reply)",
    "charged": "what an attempt has used is charged once, however often it is reported",
    "threshold": "a threshold is noted at the first moment at which so much is used, and once",
}


@dataclass(frozen=True, slots=True)
class Question:
    """``bad`` is possible if the promise is not kept. The rest says where that would be."""

    promise: str
    bad: Truth
    place: int = 0
    extended: int = 0
    final: bool = False
    price: Price | None = None
    threshold: Threshold | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """About one promise, of one limit or none. ``numbers`` refute it in the case of ``question``; ``why`` not known."""

    promise: str
    plan: Plan | None
    question: Question | None = None
    numbers: Numbers = field(default_factory=dict)
    why: str = ""
    seconds: float = 0.0

    @property
    def refuted(self) -> bool:
        return self.question is not None and not self.why


class Admission:
    """Which calls the machine admits, for what a limit leaves and where its ladder stands."""

    def __init__(self, policy: Policy, until: float, made: Callable[[Policy], Machine] = build) -> None:
        numbers = marked(policy)
        machine = around(any_size(made(numbers.policy), numbers.policy), numbers.policy, FREE)
        self._encoding = encode(machine, laws_of(numbers.policy), numbers)
        self._calls = [r for r in self._encoding.reactions if r.event in ("call", "attempt")]
        names = set(self._encoding.names) | set(numbers.symbols)
        places = {v.name: v.values for v in machine.variables}
        self._at: dict[tuple[str | None, int], Truth] = {(None, 0): True}
        for plan in plans_of(numbers.policy):
            if plan.step:
                self._at |= {(plan.step, p): eq(symbol(plan.step), p) for p in range(places[plan.step])}
        formulas = [self._encoding.assumed, *(r.when for r in self._calls), *self._at.values()]
        self._terms = Terms(names, formulas)
        self._asking = Asking(self._terms, until)
        self._known: dict[tuple[str, int, int, bool], bool] = {}

    def may(self, plan: Plan, left: int, place: int, *, final: bool) -> bool:
        """Can a call, ordinary or final, be admitted there?"""
        key = plan.field, left, place, final
        if key not in self._known:
            self._known[key] = self._may(plan, left, place, final)
        return self._known[key]

    def _may(self, plan: Plan, left: int, place: int, final: bool) -> bool:
        kind = "final" if final else "call"
        found = [
            self._terms[r.when]
            for r in self._calls
            if r.rule.effect.kind == kind and any(way.get(plan.field, left) == left for way in r.fields)
        ]
        if not found:
            return False
        at = self._terms[self._at[plan.step, place if plan.step else 0]]
        self._asking.push(self._terms[self._encoding.assumed], at, self._terms.any_of(found))
        try:
            return self._asking.possible()
        finally:
            self._asking.pop()


def ask_about_amounts(policy: Policy, until: float, made: Callable[[Policy], Machine] = build) -> list[Answer]:
    """An answer about each promise for each limit on an amount. Raises ``NoSolver``."""
    machine = made(policy)
    answers: list[Answer] = []
    plans = [plan for plan in plans_of(policy) if not plan.counted]
    try:
        admission = Admission(policy, until, made) if plans else None
    except OutOfTime as over:
        return [Answer(name, plan, why=str(over)) for plan in plans for name in PROMISES if name != "threshold"]
    for plan in plans:
        subject = Subject(policy, plan, machine)
        assert admission is not None
        for promise, questions in _promises(subject, admission).items():
            answers.append(_answered(promise, plan, questions, subject.known, until))
    if any(plan.resource != "wall" for plan in plans):
        answers.append(_answered("charged", None, lambda: _charged(policy, machine), _least(), until))
    for threshold in policy.thresholds:
        counted = [plan for plan in plans if plan.resource == threshold.resource]
        if counted:
            subject = Subject(policy, counted[0], machine)
            asked = _crossed(subject, threshold)
            answers.append(_answered("threshold", counted[0], lambda asked=asked: asked, _least(), until))  # type: ignore[misc]
    return answers


Asked = Callable[[], Iterator[Question]]


def _answered(promise: str, plan: Plan | None, questions: Asked, known: Truth, until: float) -> Answer:
    began = time.perf_counter()
    try:
        asked = [q for q in questions() if q.bad is not False]
        terms = Terms([*SYMBOLS, *_MORE], [known, *(q.bad for q in asked)])
        asking = Asking(terms, until)
        asking.add(terms[known])
        for question in asked:
            asking.push(terms[question.bad])
            possible = asking.possible()
            asking.pop()
            if possible:
                numbers = _smallest(terms, known, question.bad, asking.numbers(), until)
                return Answer(promise, plan, question, numbers, seconds=time.perf_counter() - began)
    except (OutOfTime, TooMuch) as problem:
        return Answer(promise, plan, why=str(problem), seconds=time.perf_counter() - began)
    return Answer(promise, plan, seconds=time.perf_counter() - began)


_MORE = ("flying", "all_replies", "largest", "charged_input", "charged_output", "reported_input", "reported_output")


def _least() -> Truth:
    return every((*(le(x, symbol(n)) for n, x in SYMBOLS.items()), *(le(0, symbol(n)) for n in _MORE)))


def _smallest(terms: Terms, known: Truth, bad: Truth, found: Numbers, until: float) -> Numbers:
    """Numbers that people like to read: as small as a few questions make them."""
    asking = Asking(terms, min(until, time.perf_counter() + 1.0))
    asking.add(terms[known], terms[bad])
    try:
        for most in (10, 100, 1_000, 100_000):
            small = Terms(terms.names, [every(le(symbol(n), most) for n in terms.names)])
            asking.push(*small.formulas)
            if asking.possible():
                return asking.numbers()
            asking.pop()
    except OutOfTime:
        pass
    return found


# -- the promises about one limit -------------------------------------------------------------------


def _promises(subject: Subject, admission: Admission) -> dict[str, Asked]:
    promises: dict[str, Asked] = {
        "reserve": lambda: _reserve(subject, admission),
        "final": lambda: _final(subject, admission),
    }
    if subject.plan.limit.reserve and any(subject.finalizes(place) for place, _ in subject.places()):
        promises["answer"] = lambda: _answer(subject, admission)
        if subject.plan.resource in ("tokens", "output_tokens", "cost"):
            promises["bound"] = lambda: _bound(subject, admission)
    if subject.plan.resource != "wall":
        promises["overshoot"] = lambda: _overshoot(subject, admission)
    return promises


def _cases(subject: Subject) -> Iterator[tuple[int, int, Price | None]]:
    for place, extended in subject.places():
        for price in subject.prices or (None,):
            yield place, extended, price


def classes(subject: Subject, place: int, extended: int, price: Price | None, *, later: bool = False) -> list[Way[int]]:
    """What production says is left: every way to it. Worked out once for a subject."""
    key = place, extended, price and price.model, later
    if key not in subject.classes:
        subject.classes[key] = _classified(subject, place, extended, price, later)
    return subject.classes[key]


def _classified(subject: Subject, place: int, extended: int, price: Price | None, later: bool) -> list[Way[int]]:
    def classify() -> int:
        amounts, at = subject.amounts(price), unknown("at")
        if later and subject.plan.resource == "wall":
            at = at + unknown("reply")
        values, size = subject.values(place, extended), unknown("size")
        return amounts.states(values, subject.book(later=later), at, MODEL, size)[0]

    return list(ways(classify))


def _reserve(subject: Subject, admission: Admission) -> Iterator[Question]:
    for place, extended, price in _cases(subject):
        room = minus(subject.left(extended), subject.kept(place))
        for way in classes(subject, place, extended, price):
            if admission.may(subject.plan, way.result, place, final=False):
                bad = every((way.when, no(subject.fits(room, price))))
                yield Question("reserve", bad, place, extended, False, price)


def _final(subject: Subject, admission: Admission) -> Iterator[Question]:
    for place, extended, price in _cases(subject):
        fits = subject.fits(subject.left(extended), price)
        for way in classes(subject, place, extended, price):
            if admission.may(subject.plan, way.result, place, final=True):
                yield Question("final", every((way.when, no(fits))), place, extended, True, price)
            elif way.result == NOTHING or subject.finalizes(place):
                yield Question("final", every((way.when, fits)), place, extended, False, price)


def _answer(subject: Subject, admission: Admission) -> Iterator[Question]:
    for place, extended, price in _cases(subject):
        if not subject.finalizes(place):
            continue
        first = [w for w in classes(subject, place, extended, price) if w.result == ENOUGH]
        later = classes(subject, place, extended, price, later=True)
        refused = [w for w in later if not admission.may(subject.plan, w.result, place, final=True)]
        taken = _taken(subject)
        for way in first:
            if admission.may(subject.plan, way.result, place, final=False):
                for after in refused:
                    # The next request is refused, or ordinary: then there is no need of a final one yet.
                    if after.result == NOTHING:
                        bad = every((way.when, after.when, le(taken, symbol("reserve"))))
                        yield Question("answer", bad, place, extended, False, price)


def _taken(subject: Subject) -> Term:
    """What a reply has taken of the limit."""
    names = {
        "tokens": plus(symbol("more_input"), symbol("more_output")),
        "input_tokens": symbol("more_input"),
        "output_tokens": symbol("more_output"),
    }
    return names.get(subject.plan.resource, symbol("reply"))


def _bound(subject: Subject, admission: Admission) -> Iterator[Question]:
    for place, extended, price in _cases(subject):
        if not admission.may(subject.plan, ENOUGH, place, final=False):
            continue
        room = minus(subject.left(extended), subject.kept(place))

        def bounded(place: int = place, extended: int = extended, price: Price | None = price) -> object:
            amounts, book, values = subject.amounts(price), subject.book(), subject.values(place, extended)
            call = CallState("c", 0, "", model=MODEL, input_tokens=unknown("size"))
            left = amounts.states(values, book, unknown("at"), MODEL, call.input_tokens)[0]
            return amounts.largest_output(values, book, call, False) if left == ENOUGH else None

        for way in ways(bounded):
            if way.result is not None:
                inside = subject.within(term_of(way.result), room, price)
                yield Question("bound", every((way.when, no(inside))), place, extended, False, price)


def _overshoot(subject: Subject, admission: Admission) -> Iterator[Question]:
    """``flying`` is what the attempts in flight may take at most, ``all_replies`` what as many as there may be take."""
    flying, all_replies, largest = symbol("flying"), symbol("all_replies"), symbol("largest")
    for place, extended, price in _cases(subject):
        most = plus(minus(subject.maximum(extended), 1), all_replies)
        one_more = le(plus(flying, largest), all_replies)
        for way in classes(subject, place, extended, price):
            kinds = [final for final in (False, True) if admission.may(subject.plan, way.result, place, final=final)]
            if kinds:
                over = no(le(plus(subject.used(), plus(flying, largest)), most))
                bad = every((way.when, _none_below(), one_more, over))
                yield Question("overshoot", bad, place, extended, kinds[0], price)
        landed = plus(plus(subject.used(), symbol("reply")), minus(flying, largest))
        held = le(plus(subject.used(), flying), most)
        bad = every((_none_below(), held, le(symbol("reply"), largest), no(le(landed, most))))
        yield Question("overshoot", bad, place, extended, False, price)


def _none_below() -> Truth:
    return every(le(0, symbol(name)) for name in _MORE)


# -- usage and thresholds ---------------------------------------------------------------------------


def _charged(policy: Policy, machine: Machine) -> Iterator[Question]:
    prices: tuple[Price | None, ...] = policy.prices or (None,)
    for price in prices:
        for first in (True, False):
            known = () if price is None else (price.model_copy(update={"model": MODEL}),)
            subject = policy.model_copy(update={"prices": known})

            def charge(first: bool = first, subject: Policy = subject) -> tuple[Spent, Usage]:
                before = None if first else Usage(unknown("charged_input"), unknown("charged_output"))
                call = CallState("c", 1, "", model=MODEL, charged=before)
                spent = Spent(unknown("input"), unknown("output"), 0, 0, 0, unknown("cost"))
                reported = Usage(unknown("reported_input"), unknown("reported_output"))
                return Amounts(subject, plans_of(subject), machine).charge(spent, call, reported)

            for way in ways(charge):
                spent, charged = way.result
                wrong = [
                    _wrong(name, getattr(spent, name), getattr(charged, name), first) for name in ("input", "output")
                ]
                if price is not None:
                    wrong.append(_wrong_cost(price, spent.cost, first))
                yield Question("charged", every((way.when, some(wrong))), int(not first), price=price)


def _largest(name: str, first: bool) -> tuple[Term, Term]:
    """What has been charged of it before, and what will have been."""
    before, reported = (0 if first else symbol(f"charged_{name}")), symbol(f"reported_{name}")
    return before, either(le(before, reported), reported, before)


def _wrong(name: str, spent: object, charged: object, first: bool) -> Truth:
    before, after = _largest(name, first)
    grown = eq(minus(term_of(spent), symbol(name)), minus(after, before))
    return no(every((grown, eq(term_of(charged), after))))


def _wrong_cost(price: Price, spent: object, first: bool) -> Truth:
    """Rounded up once for the attempt, however often it is reported."""

    def cost(input: Term, output: Term) -> Term:
        return f"(- (div (- (+ (* {price.input} {input}) (* {price.output} {output}))) 1000000))"

    (before_in, after_in), (before_out, after_out) = _largest("input", first), _largest("output", first)
    grown = minus(cost(after_in, after_out), cost(before_in, before_out))
    return no(eq(minus(term_of(spent), symbol("cost")), grown))


def _crossed(subject: Subject, threshold: Threshold) -> Iterator[Question]:
    policy = Policy(name="p", thresholds=(threshold,))
    for crossed in (0, 1):

        def cross(crossed: int = crossed) -> tuple[int, int]:
            standing = lambda values, book, at: (unknown("input"), unknown("maximum"))  # noqa: E731
            thresholds = Thresholds(policy, ((subject.plan, standing),))
            after, notes = thresholds.cross((), Book(Run("r", 0), extra=BookExtra(crossed=crossed)), 0)
            return after, len(notes)

        reached = le(f"(* {threshold.percent} {symbol('maximum')})", f"(* 100 {symbol('input')})")
        for way in ways(cross):
            after, notes = way.result
            right = some((bool(crossed), reached)) if after else no(some((bool(crossed), reached)))
            noted = every((not crossed, reached)) if notes else some((bool(crossed), no(reached)))
            once = notes <= 1
            bad = every((way.when, no(every((right, noted, once)))))
            yield Question("threshold", bad, crossed, threshold=threshold)
