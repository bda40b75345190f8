"""YAML to values with their places. The only module that knows PyYAML, which is imported when a YAML file is read.

Only the tree of nodes is taken from PyYAML: no tag is followed and no object is made, so that nothing in a file can
run, and what YAML 1.1 and 1.2 read differently is told instead of guessed.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml

from policy_lang.importing.reading import DEEPEST, MOST, TOP, joined, number, too_deep, too_many, twice
from policy_lang.importing.values import Odd, Place, Problem, Unusable, Value
from policy_lang.source import Source

_PLAIN = "tag:yaml.org,2002:"


def read_yaml(source: Source) -> Value:
    """The one document of a YAML file. Raises ``Unusable``."""
    try:
        documents = list(yaml.compose_all(source.text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        at = Place(mark.line + 1, mark.column + 1) if mark else Place()
        told = problem.problem or problem.context or "unreadable"
        raise Unusable(Problem(at, f"this is no YAML: {_lower(told)}")) from None
    except yaml.reader.ReaderError as problem:
        at = Place(*source.position(min(int(problem.position), len(source.text))))
        raise Unusable(Problem(at, "this is no YAML: a sign that may not stand in it")) from None
    except RecursionError:
        too_deep(Place())
    if not documents:
        raise Unusable(
            Problem(TOP, "expected a mapping of settings, and there are only comments", "write `KEY: VALUE`")
        )
    if len(documents) > 1:
        raise Unusable(Problem(_place(documents[1]), "a second document begins here", "import one document at a time"))
    return _Nodes().value(documents[0], "", None, ())


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _place(node: Any) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


class _Nodes:
    """Turns nodes into values; counts them, because an alias may repeat what it names again and again."""

    def __init__(self) -> None:
        self.count = 0

    def value(self, node: Any, path: str, key_at: Place | None, above: tuple[int, ...]) -> Value:
        at = _place(node)
        self.count += 1
        if id(node) in above:
            raise Unusable(Problem(at, "an alias names what it stands in", "write the value out"))
        if len(above) > DEEPEST:
            too_deep(at)
        if self.count > MOST:
            too_many(at)
        if not node.tag.startswith(_PLAIN) and node.tag != "!":
            _tagged(node.tag, at)
        inside = (*above, id(node))
        data, raw = self._data(node, path, inside), ""
        if isinstance(node, yaml.ScalarNode) and node.style is None:
            raw = node.value
        return Value(data, path, at, key_at or at, raw)

    def _data(self, node: Any, path: str, above: tuple[int, ...]) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        kind = node.tag.removeprefix(_PLAIN)
        if isinstance(node, yaml.SequenceNode) and kind in ("seq", "!"):
            return [self.value(one, f"{path}[{i}]", None, above) for i, one in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and kind in ("map", "!"):
            return self._mapping(node, path, above)
        return _tagged(f"!!{kind}", _place(node))

    def _mapping(self, node: Any, path: str, above: tuple[int, ...]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for key, one in node.value:
            at = _place(key)
            if not isinstance(key, yaml.ScalarNode):
                raise Unusable(Problem(at, "a key is a list or a mapping here", "keys are plain words"))
            if key.tag == f"{_PLAIN}merge":
                raise Unusable(Problem(at, "`<<` would merge another mapping in", "write its settings out"))
            if key.value in found:
                twice(key.value, at, found[key.value].key_at)
            found[key.value] = self.value(one, joined(path, key.value), at, above)
        return found


def _tagged(tag: str, at: Place) -> NoReturn:
    raise Unusable(Problem(at, f"the tag `{tag}` is not followed", "settings are texts, numbers, lists and mappings"))


_EXPONENT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+")
_TRUTH = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}


def _scalar(node: Any) -> Any:
    kind = node.tag.removeprefix(_PLAIN)
    text: str = node.value
    if kind in ("str", "!"):
        # What the 1.1 schema of PyYAML takes for a text, 1.2 for a number.
        return number(text) if node.style is None and _EXPONENT.fullmatch(text) else text
    if kind == "null":
        return None
    if kind == "bool":
        return _TRUTH[text.casefold()]
    if kind in ("int", "float"):
        return _number(text)
    if kind in ("timestamp", "value"):
        return Odd(text, "is a date to some readers of YAML and a text to others")
    return _tagged(f"!!{kind}", _place(node))


def _number(text: str) -> Any:
    plain = text.replace("_", "")
    if ":" in text:
        return Odd(text, "is a number to base 60 in YAML 1.1 and a text in 1.2")
    if re.fullmatch(r"[+-]?0[0-9]+", plain):
        return Odd(text, "is octal in YAML 1.1 and decimal in 1.2")
    if re.fullmatch(r"[+-]?0[xbo].*", plain, re.IGNORECASE):
        return Odd(text, "is not decimal")
    if re.fullmatch(r"[+-]?\.(inf|nan)", plain, re.IGNORECASE):
        return Odd(text, "cannot be a limit")
    return number(plain)
