"""Every code a finding can have, and a page about each: what is wrong, why it matters, what to write.

Prose only. The checks decide when a code is due; a test keeps both in step.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Page(NamedTuple):
    """One page: ``title`` is a few words, ``text`` its paragraphs, laid out."""

    title: str
    text: str


_PAGES = r"""
P100 unexpected word or sign
    Something stands where the language expects something else; the label says what. The rest of the file was
    read all the same, so the other findings of the same run are real.

P101 something is missing
    A statement ends too early, or a word in the midst of it was forgotten. The label says what is expected
    there.

P102 quotes that do not pair up
    A text is written between two double quotes on one line. A quote inside a text is written `\"`, a line end
    `\n`.

P103 block never closed
    A block is opened by `{` at the end of a line and closed by `}` on a line of its own. A statement that
    begins in the first column while a block is open tells where the `}` was forgotten.

P104 text not in double quotes
    Texts, paths, patterns of tools and names of models are written in double quotes: `tool "search_*" limit
    10`. Only names that a `param` or `let` defines, and names of clients, are bare.

P105 layout of a block
    A block has one statement a line: `{` ends the line of its header, `}` stands alone.

        limits {
          llm_calls  20  then finalize
        }

P106 line in the wrong block
    Every line has one block it belongs in: limits in `limits`, `prefer`, `mode`, `tools` and `empty` in
    `finalization`, `trip` and `reset` in `breaker`, `given`, `when` and `expect` in `test`. Blocks are not
    nested. What limits a tree of agents (`children`, `live_children`, `depth`, `concurrent`) is written in
    `agents`. The block of one `agent` has limits, `at`, `on` and `tool` lines; all else is that of the policy.

P107 step without `then`
    The steps of a ladder each begin with `then`: `tool_iterations 5 then extend 3 once then finalize`.

P108 reserved word as a name
    `then`, `stop`, `finalize`, `retry`, `fallback`, `extend` and `reply` are verbs everywhere and cannot name a
    `param` or `let`. Every other word can.

P109 notation of another language
    A limit is written `llm_calls 20`, without `=` or `:`. A statement ends with its line, without `;`. Comments
    start with `#`. Ranges are written `1s..30s`, thousands `1_000` or `1k`, units right behind their number.

P110 unknown escape in a text
    In a text, `\"` is a quote, `\\` a backslash, `\n` a line end, `\t` a tab and `\u{1F600}` a character by its
    number.

P111 no `policy` line at the top
    The first statement of every file says what it is and in which version of the language it is written:
    `policy "support-agent" lang 1`.

P112 unknown version of the language
    The number behind `lang` tells how the file is to be read. A newer file needs a newer version of this
    program; reading it by older rules could give it another meaning.

P115 too many syntax errors
    After 200 syntax errors the rest of a file is not read. It is probably not a policy.

P201 unknown word of the language
    Resources, scopes, reasons, actions and modes are fixed sets of words. The help names the nearest, or all.

P202 value of the wrong kind
    Each place takes one kind of value: a count (`20`, `10k`, `1.5M`), a duration (`5m30s`), money (`$2.50`), a
    percentage (`80%`) or a text. `m` is always minutes, `M` always millions.

P203 name not defined
    A bare word in the place of a quantity or a text is the name of a `param` or `let` of the same file, or of a
    `let` of a file it imports. A base that is extended keeps its names to itself.

P204 name defined twice
    A name stands for one value in a file, its own `param`s and `let`s and imported `let`s together.

P205 unknown placeholder
    A text for the model may contain `{left}`, `{used}`, `{limit}`, `{tool}` and `{resource}`. `{{` is a literal
    brace.

P206 malformed quantity
    Counts: whole numbers, `_` between digits, `k` `M` `G` for powers of a thousand. Durations: `d` `h` `m` `s`
    `ms`, large units first, joined as in `1h30m`. Money: `$2.50`, six decimals at most. Percentages: whole,
    `80%`.

P207 quantity out of range
    A quantity is never negative and never above 2^53-1. `0` means none, `unlimited` no limit; where none makes
    no sense, such as a timeout of nothing, zero is refused.

P208 step out of place
    A limit's ladder knows `stop`, `finalize`, `extend`, `ask` and `consult`. `retry` and `fallback` belong to
    `on llm_failure`, `reply` to `on unknown_tool`. Nobody is asked or consulted about `wall`, for time passes while
    they think. What limits a tree of agents has no ladder: an agent for which there is no room is refused.

P209 option or clause that does not apply
    `reserve` is for resources that are measured (tokens, cost, wall), `atomic` and `partial` for `tool_calls`;
    `wall` is limited per run or subtree only, and the block of an `agent` has no thread. `counting approvals` is
    for `wall`. `share` and `carve` are for what agents draw on together. An option that would do nothing is refused,
    so that nobody relies on it.

P210 written twice
    One file says each thing once: a second line for the same limit, clause, price or threshold would silently
    win or lose. The same resource may be limited in several scopes, as in `per run` and `per thread`.

P211 empty name
    The name of a policy or model, and the pattern of a tool, cannot be empty.

P212 value from the host that does not fit
    The host may set what the file declares as `param`, to a value of the same kind as its default. In Python:
    an integer for a count, `timedelta` or text for a duration, `Decimal` or text for money; on the command line
    as it would be written in the file: `--set patience=5m`.

P301 tool finalization that can never run
    Each tool round takes one model call, and the final answer one more. With no more calls than rounds, the
    calls run out first and the run ends `incomplete` instead. In reactive mode the refused round takes a call
    too.

P302 fewer rounds than written
    When `llm_calls` finalizes, its last call is the final one and has no tools, so N calls allow N-1 rounds at
    most.

P303 alternating window odd or too small
    `trip alternating W` looks for A, B, A, B among the last W failures: W is even and at least 4.

P304 breaker that trips at once
    One failure is no row of failures with equal arguments, and one result repeats nothing. `failures 1` says that
    a single failure is enough.

P305 extension above the limit
    `extend` adds at most the original limit, so a larger number is capped to it.

P306 fallback without a client to go to
    A chain of `fallback` names each client once, and each client is one that the host has. Which it has is known
    where clients are declared: `--clients small,large`, or tables `[clients.NAME]` in a file `policy.toml` beside
    the policy. A client that has failed in a call is not asked again in it, so a later `fallback` to the same
    clients is never taken.

P307 breaker in the shadow of another
    Several breakers may match a tool, and any open one skips it. One that never resets and trips earlier, for the
    same kind of failures, leaves the other nothing to do. A breaker that resets leaves it something: the second
    may then count on, and trip for longer.

P308 more for an agent than there is
    What an agent uses is used of the pools of all above it as well. A budget that is larger than what the policy
    allows the whole tree can never be used up: the tree's limit ends the agent first.

P309 rules for agents that cannot be
    `children 0`, `live_children 0` and `depth 0` let no agent be spawned, and a block for one is never of use.

P310 threshold that is never of use
    A threshold is a percentage from 1% to 99% of a resource that has a limit. At 100% the limit's own ladder
    acts.

P311 empty text
    An empty instruction tells the model nothing. `finalize` alone uses the default instruction.

P312 `retry` where trying again does not help
    A wrong key, a request that the provider refuses, a filtered answer and a conversation that is too long are the
    same a second later. A `retry` that is reached through a broader reason, such as `*` or `provider`, is skipped
    for the first three without being told. A larger model may help where the conversation is too long: `fallback`.

P313 unreachable step
    `stop` and `finalize` end the ladder of a limit; nothing behind them is ever taken, unless a `consult` stands before
    them: it chooses among all steps behind it by their verb, and gets the first of that verb. `finalize using NAME` may
    be followed by more: if the host's function fails, the next step is taken. In a ladder for failed calls `finalize`
    is skipped once a run had its final call, so steps may follow it, but no second `finalize`. A `consult` with none
    but `stop` behind it is asked for nothing.

P314 waits longer than the run may last
    The waits of a `retry` double from the shortest to the longest, and jitter may double each of them once more.
    One that would not end before the deadline of `wall` is not begun: the next step of the ladder is taken. What a
    provider asks for is not counted here.

P315 `override` that changes nothing
    `override` marks that a line loosens a base's limit. On a line that does not, it would hide a later
    loosening.

P316 change of a locked limit
    A limit marked `locked` cannot be changed by files that extend it, neither loosened nor tightened, and not be
    loosened for one agent. A limit of the same resource in another scope can be added.

P318 clause for tools that never run
    A `limit`, `timeout`, `ask` or `retry` is for tools that may run. Where every tool that the pattern matches is
    denied, it has no effect. An `allow` in the file that denies is an exception to a broader `deny`.

P320 two rules for one reason
    A failed call has one ladder, that of the most specific rule that names its reason. Two rules of one file for the
    same reason leave open which; write all steps in one. A file that extends another may have its own rule: it takes
    the place of the base's rule for that reason.

P319 unused name
    A `param` or `let` that nothing uses is usually a line that lost its use, or a misspelling of one.

P325 `cost` without prices
    Cost is tokens times prices. Without a `prices` block nothing could be counted and the limit would never
    act.

P326 more attempts than a run may make
    Each client that a ladder falls back to is tried and retried as the first was. If one failing call can take more
    attempts than `llm_attempts` allows, the later steps of its ladder may never be reached.

P328 only one call, and that one final
    `llm_calls 1 then finalize` makes the only call the final one, which has no tools: the agent can never use
    any.

P329 `extend` or `ask` on `llm_calls`
    `llm_calls` is the strict outer budget of a run: whatever else is extended or granted, it is not.

P330 `finalize` without a reserve
    Tokens, cost and time are known only after they are spent. A final call inside such a limit is possible only
    if something is kept back for it: `tokens 200k reserve 4k then finalize`.

P332 instruction that is never sent
    Where several limits make the same call the final one, it carries the instruction of the preferred limit, by
    default `llm_calls`. If that is always reached in time, the other limit's instruction is dead text.

P333 tree of agents that nothing bounds
    `llm_calls` is counted for each run of each agent, unless a scope is written. A model that delegates again and
    again can then make any number of calls. A limit for the whole tree ends that: `llm_calls 100 per subtree`, or one
    on tokens, cost or tool calls, whose scope is the subtree anyway; or `children` with a `depth`.

P334 waiting without an end
    `ask` without `within` waits for as long as nobody answers. Where a `wall` limits the run, that ends the wait. A
    limit's `ask` has no `within`: the run is suspended, and can be answered or cancelled at any time.

P335 decisions that depend on what ends first
    By default a breaker looks at outcomes when a round is complete, in the order in which the model asked for its
    tools, so that the same round always leads to the same decisions. With `apply now` a tool that has just failed
    is refused sooner, and which calls are refused depends on the order in which tools happened to end.

P336 `concurrent 0`
    Every agent would wait for a place to run in, for ever. `depth 0` allows no agents.

P338 loosening without `override`
    A file may tighten what it extends, and says `override` where it loosens. Looser is a larger maximum, or a
    larger maximum with its extension and with what people may grant, or a `wall` that no longer goes on `counting
    approvals`. The limits of one run in the block of an `agent` replace those of the policy for this agent, and need
    `override` in the same way.

P339 other price than the base's
    A base's price cannot be changed: lowering it would loosen the base's `cost` limit unseen.

P341 reserve for nothing
    `reserve` keeps something back for the final call that the limit's own ladder makes. Without a `finalize` in it
    nothing is kept back, and all of the limit can be spent.

P342 `allow` that lifts nothing
    An `allow` is an exception to a `deny` or `ask` of the same file whose pattern is broader, as `"file_*"` is than
    `"file_read"`. It never lifts a rule of a base or of an imported file, and it is not needed for tools that no rule
    denies: what is not denied may run.

P343 reserve as large as the limit
    The final call is due as soon as no more than the reserve is left. With all of the limit as reserve that is before
    the first call, and no tool could ever be used.

P344 two clauses for the same tools
    Of two statements of one file with the same pattern and the same clause only one ever binds: the smaller limit, the
    shorter time, one of two texts. Whoever changes the other changes nothing.

P345 pool that is none
    Agents share, or are given their part of, what is limited for a tree: per subtree, or per thread. Where nothing
    limits a resource in this way, there is nothing to share or carve.

P346 nothing to carve
    What is carved for an agent is the limit per subtree in its own block. An agent without one gets no part of its
    own and draws on the pool, like all agents where a resource is shared.

P401 file that cannot be read
    The file does not exist, or its permissions do not allow reading it.

P402 directory instead of a file
    `policy check` searches directories for files; everything else takes a file.

P403 file too large
    A policy file is at most 1 MiB.

P404 not a text file
    Policies are UTF-8 text, with or without a byte order mark.

P405 path outside of the root
    A policy may ask only for files inside one directory: that of the first file, unless the host names another
    (`--root DIR`, `load(..., root=...)`). Paths are relative to the file they stand in; links are followed
    first.

P406 files that ask for each other
    `extends` and `import` must not lead back to the same file. The message shows the circle.

P407 chain of files too long
    A file, what it extends or imports, what that does, and so on: 16 at most.

P408 statement that an import does not bring
    `import` brings tools, breakers, `let`s and tests. Limits and all that goes with them are inherited by
    `extends` only, so that there is one place to look for them.

P900 unused suppression
    A `# policy: allow` that silences nothing may hide a finding to come. Remove it.

P901 suppression without a reason
    Say why the finding is right here: `# policy: allow P319 kept for the next release`.

P902 malformed suppression
    A suppression is a comment on a line of its own above the statement it is for: `# policy: allow CODE
    reason`.
"""


def _parsed() -> dict[str, Page]:
    pages: dict[str, Page] = {}
    for part in re.split(r"\n(?=P[0-9]{3} )", _PAGES.strip()):
        head, _, text = part.partition("\n")
        lines = [line.removeprefix("    ") for line in text.strip("\n").split("\n")]
        pages[head[:4]] = Page(head[5:], "\n".join(lines))
    return pages


PAGES: dict[str, Page] = _parsed()
"""Code, to its page."""


def page(code: str) -> str | None:
    """The page of a code (in capitals or not), as text; ``None`` if there is no such code."""
    found = PAGES.get(code.upper())
    return f"{code.upper()}: {found.title}\n\n{found.text}\n" if found else None


def no_such_code(word: str) -> str | None:
    """What to say of a word that looks like a code and is none, with the codes nearest to it; ``None`` otherwise."""
    if not re.fullmatch(r"[Pp][0-9]{1,6}", word) or word.upper() in PAGES:
        return None
    number = int(word[1:])
    near = sorted(PAGES, key=lambda code: (abs(int(code[1:]) - number), code))[:3]
    listed = "".join(f"\n  {code} {PAGES[code].title}" for code in sorted(near))
    return f"no finding has the code {word.upper()}; the nearest are{listed}"
