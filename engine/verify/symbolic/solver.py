"""The solver, z3, behind a narrow door: text goes in, and an answer with numbers comes out.

It is an extra: whoever asks for it where it is not installed gets ``NoSolver``, with the way to install it.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.verify.symbolic.terms import Truth, truth


class NoSolver(Exception):
    """z3 is not installed; the message says how to get it."""


class OutOfTime(Exception):
    """The time that was given is over."""


def z3() -> Any:
    """The module. Raises ``NoSolver``."""
    try:
        return importlib.import_module("z3")
    except ImportError:
        raise NoSolver(
            "proofs about all numbers need z3, which is not installed: pip install 'policy-lang[symbolic]'"
        ) from None


def version() -> str:
    """Which solver this is: ``z3 5.4.1``."""
    return f"z3 {z3().get_version_string()}"


class Terms:
    """Formulas over integers of these names, parsed in one go, each once."""

    def __init__(self, names: Iterable[str], formulas: Iterable[Truth]) -> None:
        self.z3 = z3()
        texts = list(dict.fromkeys(truth(formula) for formula in formulas))
        self.names = tuple(dict.fromkeys(names))
        lines = [f"(declare-const |{name}| Int)" for name in self.names]
        lines += [f"(assert {text})" for text in texts]
        parsed = self.z3.parse_smt2_string("\n".join(lines))
        if len(parsed) != len(texts):  # the parser leaves nothing out but what is the same
            parsed = [self.z3.parse_smt2_string("\n".join([*lines[: len(self.names)], f"(assert {t})"])) for t in texts]
            parsed = [one[0] if len(one) else self.z3.BoolVal(True) for one in parsed]
        self._parsed = dict(zip(texts, parsed, strict=True))
        self._integers = {name: self.z3.Int(name) for name in self.names}

    def __getitem__(self, formula: Truth) -> Any:
        return self._parsed[truth(formula)]

    @property
    def formulas(self) -> list[Any]:
        """All of them."""
        return list(self._parsed.values())

    def any_of(self, parts: Sequence[Any]) -> Any:
        return self.z3.Or(*parts) if len(parts) != 1 else parts[0]

    def all_of(self, parts: Sequence[Any]) -> Any:
        return self.z3.And(*parts) if len(parts) != 1 else parts[0]

    def none_of(self, part: Any) -> Any:
        return self.z3.Not(part)


class Asking:
    """Questions about terms. Every one is over by ``until`` (of ``time.perf_counter``)."""

    def __init__(self, terms: Terms, until: float) -> None:
        self.terms, self.until = terms, until
        self._solver = terms.z3.SolverFor("QF_LIA")
        self._model: Any = None
        self.asked = 0

    def push(self, *assumed: Any) -> None:
        self._solver.push()
        self._solver.add(*assumed)

    def add(self, *assumed: Any) -> None:
        self._solver.add(*assumed)

    def pop(self) -> None:
        self._solver.pop()

    def possible(self) -> bool:
        """Can all that is assumed be so at once? Raises ``OutOfTime``."""
        left = self.until - time.perf_counter()
        if left <= 0:
            raise OutOfTime("its time was over")
        self._solver.set("timeout", max(1, int(left * 1000)))
        self.asked += 1
        answer = self._solver.check()
        if answer == self.terms.z3.unknown:
            over = time.perf_counter() >= self.until - 0.001
            raise OutOfTime("its time was over" if over else f"the solver gave up: {self._solver.reason_unknown()}")
        if answer == self.terms.z3.sat:
            self._model = self._solver.model()
            return True
        return False

    def so(self, formula: Any) -> bool:
        """Is it so in what was found possible last?"""
        return bool(self.terms.z3.is_true(self._model.eval(formula, model_completion=True)))

    def numbers(self) -> Mapping[str, int]:
        """What every name is in what was found possible last."""
        integers = self.terms._integers
        return {n: self._model.eval(i, model_completion=True).as_long() for n, i in integers.items()}
