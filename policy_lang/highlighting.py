"""A policy's colours for tools that know no grammar: the TextMate grammar, and a lexer for Pygments.

Both go by spelling alone, line by line; the language server's colours go by the tree. Their words are those that the
language server explains, which a test holds against the grammar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from pygments.lexer import RegexLexer, include, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from policy_lang.language_server.words import KEYWORDS, REASONS, RESOURCES
from policy_lang.recovery.site import STATEMENTS

_FIRST: Final = sorted(STATEMENTS)
_STEPS: Final = ("ask", "consult", "extend", "fallback", "finalize", "reply", "retry", "stop", "then")
_MODIFIERS: Final = ("atomic", "locked", "once", "override", "partial")
_WORDS: Final = sorted({*KEYWORDS} - {*_STEPS, *_MODIFIERS, *RESOURCES, *REASONS, "unlimited"})

_BEFORE, _AFTER = r"(?<![\w-])", r"(?![\w-])"
"""A word ends where no letter, digit, `_` or `-` follows: `per-agent` is a name and has no `per` in it."""

_NUMBER: Final = r"-?\$?[0-9][A-Za-z0-9_]*(?:\.[0-9][A-Za-z0-9_]*)*%?"
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*"
_OPERATOR: Final = r"->|\.\.|<=|>=|!=|[<>=*]"
_PLACEHOLDER: Final = r"\{\{|\{(?:left|used|limit|tool|resource)\}"
_ESCAPE: Final = r"\\(?:u\{[0-9A-Fa-f]{1,6}\}|.)"


class PolicyLexer(RegexLexer):
    """Pygments' lexer for policies, as ``policy`` and for ``*.policy``."""

    name = "Policy"
    aliases: ClassVar[Sequence[str]] = ["policy"]
    filenames: ClassVar[Sequence[str]] = ["*.policy"]
    mimetypes: ClassVar[Sequence[str]] = ["text/x-policy"]

    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (rf"^({'|'.join(_FIRST)}){_AFTER}", Keyword.Declaration),
            include("words"),
        ],
        "words": [
            (r"\s+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r'"', String.Double, "text"),
            (_NUMBER, Number),
            (words(_STEPS, _BEFORE, _AFTER), Keyword.Reserved),
            (words(_MODIFIERS, _BEFORE, _AFTER), Keyword.Type),
            (words(tuple(RESOURCES), _BEFORE, _AFTER), Name.Builtin),
            (words(("unlimited", *REASONS), _BEFORE, _AFTER), Keyword.Constant),
            (words(_WORDS, _BEFORE, _AFTER), Keyword),
            (_NAME, Name),
            (_OPERATOR, Operator),
            (r"[{},]", Punctuation),
        ],
        "text": [
            (r'"', String.Double, "#pop"),
            (r"(?=\r?\n)", String.Double, "#pop"),
            (_PLACEHOLDER, String.Interpol),
            (_ESCAPE, String.Escape),
            (r'[^"\\{\r\n]+|[\\{\r]', String.Double),
        ],
    }


def textmate() -> dict[str, Any]:
    """The TextMate grammar, as its file has it."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "Policy",
        "scopeName": "source.policy",
        "fileTypes": ["policy"],
        "patterns": [
            {"name": "comment.line.number-sign.policy", "match": "#.*$"},
            _text(),
            _match("constant.numeric.policy", _NUMBER),
            {"match": rf"^\s*({'|'.join(_FIRST)}){_AFTER}", "captures": {"1": {"name": "keyword.control.policy"}}},
            _match("keyword.other.step.policy", _any(_STEPS)),
            _match("storage.modifier.policy", _any(_MODIFIERS)),
            _match("support.variable.resource.policy", _any(RESOURCES)),
            _match("constant.language.policy", _any(["unlimited", *REASONS])),
            _match("keyword.other.policy", _any(_WORDS)),
            _match("variable.other.policy", _NAME),
            _match("keyword.operator.policy", _OPERATOR),
            _match("punctuation.policy", "[{},]"),
        ],
    }


def _text() -> dict[str, Any]:
    return {
        "name": "string.quoted.double.policy",
        "begin": '"',
        "end": '"|$',
        "patterns": [
            _match("constant.character.escape.policy", _ESCAPE),
            _match("variable.parameter.placeholder.policy", _PLACEHOLDER),
        ],
    }


def _match(scope: str, pattern: str) -> dict[str, str]:
    return {"name": scope, "match": pattern}


def _any(known: Any) -> str:
    return rf"{_BEFORE}(?:{'|'.join(sorted(known))}){_AFTER}"
