"""Pages about P2xx: names, units and places of words. See the package for how they are written."""

PAGES = r"""
P201 unknown word of the language
    Resources, scopes, reasons, actions and modes are fixed sets of words. The help names the nearest, or all.

    Bad:

        policy "chat" lang 1
        limits {
          llm_cals  20
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: unsafe: it writes the word that may be meant.

P202 value of the wrong kind
    Each place takes one kind of value: a count (`20`, `10k`, `1.5M`), a duration (`5m30s`), money (`$2.50`), a
    percentage (`80%`) or a text. `m` is always minutes, `M` always millions.

    Bad:

        policy "chat" lang 1
        limits {
          tokens  5m
        }

    Good:

        policy "chat" lang 1
        limits {
          tokens  5M
        }

    Fix: safe or unsafe: it writes the `$` or `%` that is missing. Whether a number without a unit is seconds, and
    whether `5m` is five millions, is a guess.

P203 name not defined
    A bare word in the place of a quantity or a text is the name of a `param` or `let` of the same file, or of a
    `let` of a file it imports. A base that is extended keeps its names to itself.

    Bad:

        policy "chat" lang 1
        param most = 20
        limits {
          llm_calls     20
          tokens        most_tokens
          llm_attempts  most
        }

    Good:

        policy "chat" lang 1
        param most        = 20
        let   most_tokens = 200k
        limits {
          llm_calls     20
          tokens        most_tokens
          llm_attempts  most
        }

    Fix: unsafe: it writes the name that may be meant.

P204 name defined twice
    A name stands for one value in a file, its own `param`s and `let`s and imported `let`s together.

    Bad:

        policy "chat" lang 1
        param most = 20
        let   most = 10
        limits {
          llm_calls  most
        }

    Good:

        policy "chat" lang 1
        param most = 20
        limits {
          llm_calls  most
        }

P205 unknown placeholder
    A text for the model may contain `{left}`, `{used}`, `{limit}`, `{tool}` and `{resource}`. `{{` is a literal
    brace.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize "Answer now: {remaining} calls are left."
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize "Answer now: {left} calls are left."
        }

    Fix: unsafe: it writes the placeholder that may be meant, or a literal brace for one that is not closed.

P206 malformed quantity
    Counts: whole numbers, `_` between digits, `k` `M` `G` for powers of a thousand. Durations: `d` `h` `m` `s`
    `ms`, large units first, joined as in `1h30m`. Money: `$2.50`, six decimals at most. Percentages: whole,
    `80%`.

    Bad:

        policy "chat" lang 1
        limits {
          tokens  200K
        }

    Good:

        policy "chat" lang 1
        limits {
          tokens  200k
        }

    Fix: safe or unsafe: it writes the same quantity as the language writes it. A percentage with decimals loses
    them, which is unsafe.

P207 quantity out of range
    A quantity is never negative and never above 2^53-1. `0` means none, `unlimited` no limit; where none makes
    no sense, such as a timeout of nothing, zero is refused.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  -1
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: safe: it puts the two waits of a `retry` in order. Other numbers are yours to choose.

P208 step out of place
    A limit's ladder knows `stop`, `finalize`, `extend`, `ask` and `consult`. `retry` and `fallback` belong to
    `on llm_failure`, `reply` to `on unknown_tool`. Nobody is asked or consulted about `wall`, for time passes while
    they think. What limits a tree of agents has no ladder: an agent for which there is no room is refused.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then retry 2
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }

    Fix: safe: it removes a ladder where none can be. Other steps have to be moved by hand.

P209 option or clause that does not apply
    `reserve` is for resources that are measured (tokens, cost, wall), `atomic` and `partial` for `tool_calls`;
    `wall` is limited per run or subtree only, and the block of an `agent` has no thread. `counting approvals` is
    for `wall`. `share` and `carve` are for what agents draw on together. An option that would do nothing is refused,
    so that nobody relies on it.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  reserve 1  then finalize
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }

    Fix: safe: it removes an option that has no meaning where it stands, where the help says nothing else.

P210 written twice
    One file says each thing once: a second line for the same limit, clause, price or threshold would silently
    win or lose. The same resource may be limited in several scopes, as in `per run` and `per thread`.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20
          llm_calls  30
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
          llm_calls  30  per thread
        }

    Fix: safe: it removes the second of two equal names in `prefer`. Which of two other lines is meant is yours to
    say.

P211 empty name
    The name of a policy or model, and the pattern of a tool, cannot be empty.

    Bad:

        policy "" lang 1
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

P212 value from the host that does not fit
    The host may set what the file declares as `param`, to a value of the same kind as its default. In Python:
    an integer for a count, `timedelta` or text for a duration, `Decimal` or text for money; on the command line
    as it would be written in the file: `--set patience=5m`.
"""
