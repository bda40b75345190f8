"""The words of the syntax tree, and the steps of ladders: what its statements and lines are made of.

Shape only, as in ``tree``, by which all of it is known.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias, dataclass_transform

from policy_lang.source import Span


@dataclass_transform()
class _Record:
    """A class with fields. Not a dataclass: making sixty of those would take longer than checking a file."""

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = cls.__annotations__ if "__annotations__" in vars(cls) else ()
        cls.fields = (*cls.fields, *(name for name in own if name != "keyword"))

    def __init__(self, *values: Any) -> None:
        self.__dict__.update(zip(self.fields, values, strict=True))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.fields[1:])
        return f"{type(self).__name__}({inner})"


class Node(_Record):
    """One record of the tree: its span, then its parts in the order of the grammar."""

    keyword: ClassVar[str] = ""
    """The word it begins with, where that is always the same."""
    span: Span


# ---- words


class Name(Node):
    text: str


class Text(Node):
    """A string as written, quotes and escapes included."""

    raw: str


class Number(Node):
    """Any quantity as written, right or wrong."""

    text: str


class Unlimited(Node):
    pass


class Star(Node):
    pass


class Missing(Node):
    """Stands where a word was expected and not found. Reported already."""


class Broken(Node):
    """A statement or line that could not be understood. Reported already."""


Word: TypeAlias = Name | Missing
Value: TypeAlias = Number | Name | Unlimited | Missing
Phrase: TypeAlias = Text | Name | Missing
Constant: TypeAlias = Number | Text | Unlimited | Missing
Quoted: TypeAlias = Text | Missing

# ---- steps of a ladder


class Stop(Node):
    keyword = "stop"


class Finalize(Node):
    keyword = "finalize"
    text: Phrase | None


class FinalizeUsing(Node):
    keyword = "finalize"
    resolver: Word


class Extend(Node):
    keyword = "extend"
    by: Value


class Every(Node):
    low: Value
    dots: Name
    high: Value
    jitter: Name | None


class Retry(Node):
    keyword = "retry"
    count: Value
    every: Every | None


class Fallback(Node):
    keyword = "fallback"
    clients: tuple[Phrase, ...]
    lasting: Value | None


class Reply(Node):
    keyword = "reply"
    count: Value


class Ask(Node):
    keyword = "ask"
    up_to: Value | None
    times: Value | None


class Consult(Node):
    keyword = "consult"
    name: Word


Step: TypeAlias = Stop | Finalize | FinalizeUsing | Extend | Retry | Fallback | Reply | Ask | Consult
