"""How edits go into a text, and what fixing does in odd places: beside comments, tabs, wide signs and suppressions."""

from __future__ import annotations

import pytest

from policy_lang.diagnostics import KEEPS, SAYS, Diagnostic, Edit, Label
from policy_lang.fixing import Files, Fixer, fixed, rounds
from policy_lang.fixing.edits import applied, line_end, moved, sound, without_overlaps
from policy_lang.fixing.files import Look
from policy_lang.source import Source, Span

HEAD = 'policy "x" lang 1\n'
TEXT = "0123456789"
SOURCE = Source("a", TEXT)


def edit(start: int, end: int, text: str = "") -> Edit:
    return Edit(Span(SOURCE, start, end), text)


def finding(*fix: Edit) -> Diagnostic:
    return Diagnostic("P100", "m", Label(Span(SOURCE, 0, 1)), fix=fix)


class TestEdits:
    def test_they_are_made_whatever_their_order(self) -> None:
        assert applied(TEXT, [edit(8, 9), edit(2, 4, "x"), edit(5, 5, "!")]) == "01x4!5679"

    @pytest.mark.parametrize(
        ("text", "end"), [("a\nb\n", "\n"), ("a\r\nb\r\n", "\r\n"), ("a\r\nb\n", "\n"), ("", "\n"), ("a", "\n")]
    )
    def test_lines_end_as_all_others_do(self, text: str, end: str) -> None:
        source = Source("a", text)
        assert line_end(text) == end
        assert applied(text, [Edit(Span(source, 0, 0), "x\ny\r\n")]) == f"x{end}y{end}{text}"

    def test_where_a_place_is_afterwards(self) -> None:
        edits = [edit(2, 4, "xyz"), edit(6, 8)]
        new = applied(TEXT, edits)
        assert new == "01xyz4589"
        assert [moved(at, TEXT, edits) for at in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)] == [0, 1, 2, 2, 5, 6, 7, 7, 7, 8]
        assert moved(5, TEXT, [edit(5, 5, "ab")]) == 5

    def test_what_overlaps_waits(self) -> None:
        first, second, third = finding(edit(0, 3)), finding(edit(2, 5)), finding(edit(5, 7))
        assert without_overlaps([first, second, third]) == [first, third]
        assert without_overlaps([finding(edit(0, 2), edit(8, 9)), finding(edit(8, 9))]) == [
            finding(edit(0, 2), edit(8, 9))
        ]

    @pytest.mark.parametrize(
        ("one", "other", "both"),
        [
            (edit(0, 2), edit(2, 4), True),
            (edit(2, 2, "a"), edit(2, 2, "b"), False),
            (edit(2, 2, "a"), edit(2, 4), False),
            (edit(2, 2, "a"), edit(0, 2), False),
            (edit(2, 2, "a"), edit(3, 4), True),
            (edit(1, 4), edit(2, 3), False),
        ],
    )
    def test_which_edits_meet(self, one: Edit, other: Edit, both: bool) -> None:
        assert (len(without_overlaps([finding(one), finding(other)])) == 2) is both
        assert sound((one, other)) is both


ODD = {
    "two on one line": ("limits {\n  llm_calls = 5 finalize\n}\n", "limits {\n  llm_calls  5 then finalize\n}\n"),
    "a comment behind a header": (
        "limits  # how much\n# between\n{  # brace\n  llm_calls 5\n}\n",
        "limits {  # how much\n# between\n  # brace\n  llm_calls 5\n}\n",
    ),
    "a comment behind what is not finished": (
        "limits {\n  tool_calls 5 then extend 2  # more\n}\n",
        "limits {\n  tool_calls 5 then extend 2 once  # more\n}\n",
    ),
    "comments between steps": (
        "limits {\n  llm_calls 5  # one\n    # two\n    then finalize  # three\n    then stop  # four\n    # five\n}\n",
        "limits {\n  llm_calls 5  # one\n    # two\n    then finalize  # three\n    # four\n    # five\n}\n",
    ),
    "a step on a line of its own": (
        "limits {\n  llm_calls 5\n    then finalize\n    then stop\n}\n",
        "limits {\n  llm_calls 5\n    then finalize\n}\n",
    ),
    "tabs and wide signs": (
        "limits {\n\ttool_calls\t= 5 \t finalize\t# 日本 = x\n}\ntool\t'日本'\tdeny\n",
        'limits {\n\ttool_calls\t 5 \t then finalize\t# 日本 = x\n}\ntool\t"日本"\tdeny\n',
    ),
    "a statement in the midst of a block": (
        "limits {\n  llm_calls 20\ntool 'x' deny\n",
        'limits {\n  llm_calls 20\n}\ntool "x" deny\n',
    ),
    "given behind events, with comments": (
        'test "a" {\n  when call\n  given llm_calls 1  # one\n  given tool_calls 2\n  expect call\n}\n',
        'test "a" {\n  given llm_calls 1  # one\n  given tool_calls 2\n  when call\n  expect call\n}\n',
    ),
    "no line end at the end": ("limits {\n  llm_calls 5", "limits {\n  llm_calls 5\n}\n"),
    "a name behind which something stands": ("let a = 5  # kept\n", "let a = 5  # kept\n"),
    "a suppression above another line": (
        "limits {\n  llm_calls 5\n  # policy: allow P305 not so\n  tool_calls 9\n}\n",
        "limits {\n  llm_calls 5\n  tool_calls 9\n}\n",
    ),
    "a suppression behind a line": (
        "limits {\n  llm_calls 5\n}\nlet a = 5  # policy: allow P319 for later\n",
        "limits {\n  llm_calls 5\n}\n# policy: allow P319 for later\nlet a = 5\n",
    ),
    "what is allowed stays": (
        "limits {\n  llm_calls 5\n}\n# policy: allow P319 for later\nlet a = 5\n",
        "limits {\n  llm_calls 5\n}\n# policy: allow P319 for later\nlet a = 5\n",
    ),
    "what only other settings could tell stays": (
        'limits {\n  llm_calls 5\n}\n# policy: allow P317 elsewhere\ntool "a"  deny\n',
        'limits {\n  llm_calls 5\n}\n# policy: allow P317 elsewhere\ntool "a"  deny\n',
    ),
    "nothing is idle where something is wrong": (
        "let most = 20\n# policy: allow P327 as agreed\nlimits {\n  tool_calls mots\n}\n",
        "let most = 20\n# policy: allow P327 as agreed\nlimits {\n  tool_calls mots\n}\n",
    ),
    "texts for others": ('let bye = "Bye."\ntool "a"  deny\n', 'let bye = "Bye."\ntool "a"  deny\n'),
    "a param is for hosts": (
        "param most = 20\nlimits {\n  llm_calls 5\n}\n",
        "param most = 20\nlimits {\n  llm_calls 5\n}\n",
    ),
    "a line above what is allowed": (
        'test "a" {\n  # policy: allow P999 so\n  when call\n  given llm_calls 1\n  expect call\n}\nfoo\n',
        'test "a" {\n  given llm_calls 1\n  # policy: allow P999 so\n  when call\n  expect call\n}\nfoo\n',
    ),
    "a block of one line with a comment": ("limits { llm_calls 5 }  # all\n", "limits {\n  llm_calls 5\n}  # all\n"),
    "a sign of money behind its number": ("limits {\n  cost 2$\n}\n", "limits {\n  cost 2$\n}\n"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_odd_places(name: str, end: str) -> None:
    old, new = ((HEAD + text).replace("\n", end) for text in ODD[name])
    assert fixed(old) == new


@pytest.mark.parametrize("head", ["", 'policy "a" lang 1\n'])
def test_a_header_goes_above_what_is_allowed(head: str) -> None:
    body = "# policy: allow P327 as agreed\nlimits {\n  tool_calls 5\n}\n"
    files = Files.of_text("a.policy", f"# about\n\n{body}{head}")
    Fixer(files, ["a.policy"]).run()
    assert files.text("a.policy") == f'# about\n\npolicy "a" lang 1\n{body}'


def test_a_let_is_idle_once_its_file_is_right() -> None:
    """First the mistakes, then what keeps the meaning: both in one go, and a `let` that a line has named is used."""
    old = HEAD + "let most = 20\nlet idle = 5\nlimits {\n  llm_calls = most\n}\n"
    assert fixed(old) == HEAD + "let most = 20\nlimits {\n  llm_calls  most\n}\n"


def claiming(monkeypatch: pytest.MonkeyPatch, better: dict[str, str], safety: str) -> None:
    """Let a rule say of some words that others should stand there."""
    from policy_lang.report import Report
    from policy_lang.rules import p302_fewer_rounds as rule
    from policy_lang.rules.subject import Subject

    def check(policy: Subject, report: Report) -> None:
        source = policy.unit.source
        for word, other in better.items():
            if (at := source.text.find(word)) >= 0:
                span = Span(source, at, at + len(word))
                report.warn("P302", f"not `{word}`", span, fix=(Edit(span, other),), safety=safety)

    monkeypatch.setattr(rule, "check", check)


def test_a_fix_that_claims_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + "limits {\n  llm_calls  5\n}\n"
    claiming(monkeypatch, {"5": "6"}, KEEPS)
    files = Files.of_text("x", text)
    fixer = Fixer(files, ["x"])
    fixer.run()
    assert files.text("x") == text
    assert [(refused.finding.code, refused.why) for refused in fixer.refused] == [
        ("P302", "the policy would not mean the same")
    ]


@pytest.mark.parametrize("safety", [KEEPS, SAYS])
def test_of_many_fixes_the_one_at_fault_is_found(monkeypatch: pytest.MonkeyPatch, safety: str) -> None:
    tools = "".join(f'tool "tool_{n:02}"  limit 5_{n:03}\n' for n in range(12))
    text = HEAD + "limits {\n  llm_calls  5\n}\n" + tools
    better = {f"5_{n:03}": f"5{n:03}" for n in range(12)} | {"5_007": "5m", "5_010": "5_010_"}
    claiming(monkeypatch, better, safety)
    files = Files.of_text("x", text)
    fixer = Fixer(files, ["x"])
    fixer.run()
    made = "".join(f'tool "tool_{n:02}"  limit {"5_" if n in (7, 10) else "5"}{n:03}\n' for n in range(12))
    assert files.text("x") == HEAD + "limits {\n  llm_calls  5\n}\n" + made
    assert [(refused.finding.message, refused.why) for refused in fixer.refused] == [
        ("not `5_007`", "there would be 1 more error"),
        ("not `5_010`", "there would be 1 more error"),
    ]


def test_two_fixes_that_undo_each_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + 'limits {\n  llm_calls  5\n}\ntool "aa"  deny\n'
    claiming(monkeypatch, {'"aa"': '"bb"', '"bb"': '"aa"'}, SAYS)
    files = Files.of_text("x", text)
    fixer = Fixer(files, ["x"])
    fixer.run()
    assert files.text("x") == text.replace("aa", "bb")
    assert [refused.why for refused in fixer.refused] == ["it would undo another fix"]


def test_where_most_fixes_are_wrong_it_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find those that are right by halves would take as many looks at the file as there are fixes, twice."""
    tools = "".join(f'tool "tool_{n:03}"  limit 5_{n:03}\n' for n in range(100))
    text = HEAD + "limits {\n  llm_calls  5\n}\n" + tools
    claiming(monkeypatch, {f"5_{n:03}": "5m" if n < 90 else f"5{n:03}" for n in range(100)}, SAYS)
    monkeypatch.setattr(rounds, "MOST_TRIED", 12 * len(text))
    looks = 0
    real = Files._looked

    def counted(self: Files, name: str, source: Source) -> Look:
        nonlocal looks
        looks += 1
        return real(self, name, source)

    monkeypatch.setattr(Files, "_looked", counted)
    files = Files.of_text("x", text)
    fixer = Fixer(files, ["x"])
    fixer.run()
    assert looks < 100
    late = "others beside it go wrong, and to try each alone takes too long"
    assert late in {refused.why for refused in fixer.refused}
    assert len(fixer.refused) + len(fixer.done.get("x", [])) == 100


def test_errors_that_were_not_read_before_are_no_fault_of_a_fix() -> None:
    """A file with more errors than are told: what stands behind them is seen once those before are mended."""
    text = HEAD + 'agent "x" {\n' * 300
    assert fixed(text) == HEAD + 'agent "x" {\n}\n' * 300
