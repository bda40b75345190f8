"""Pages about P1xx: what the parser finds. See the package for how they are written."""

PAGES = r"""
P100 unexpected word or sign
    Something stands where the language expects something else; the label says what. The rest of the file was
    read all the same, so the other findings of the same run are real.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  the stop
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then stop
        }

    Fix: safe or unsafe: a `then` or a `}` too many is removed, and two words that have changed places are put in
    order. A word that may be meant is a guess, and so is a comma with nothing behind it: something may be missing
    there.

P101 something is missing
    A statement ends too early, or a word in the midst of it was forgotten. The label says what is expected
    there.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: safe: it writes the word or sign that is missing, where only one can be meant.

P102 quotes that do not pair up
    A text is written between two double quotes on one line. A quote inside a text is written `\"`, a line end
    `\n`.

    Bad:

        policy "chat lang 1
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: unsafe: where a text ends is a guess. The quote is added at the end of the line, or those inside of the
    text are escaped.

P103 block never closed
    A block is opened by `{` at the end of a line and closed by `}` on a line of its own. A statement that
    begins in the first column while a block is open tells where the `}` was forgotten.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20
        tool "shell"  deny

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        tool "shell"  deny

    Fix: safe: it writes the `}` where the message says.

P104 text not in double quotes
    Texts, paths, patterns of tools and names of models are written in double quotes: `tool "search_*" limit
    10`. Only names that a `param` or `let` defines, and names of clients, are bare.

    Bad:

        policy "chat" lang 1
        tool shell  deny

    Good:

        policy "chat" lang 1
        tool "shell"  deny

    Fix: safe: it writes the text in double quotes.

P105 layout of a block
    A block has one statement a line: `{` ends the line of its header, `}` stands alone.

        limits {
          llm_calls  20  then finalize
        }

    Bad:

        policy "chat" lang 1
        limits { llm_calls 20 }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: safe: it begins lines where they begin, and says nothing else.

P106 line in the wrong block
    Every line has one block it belongs in: limits in `limits`, `prefer`, `mode`, `tools` and `empty` in
    `finalization`, `trip` and `reset` in `breaker`, `given`, `when` and `expect` in `test`. Blocks are not
    nested. What limits a tree of agents (`children`, `live_children`, `depth`, `concurrent`) is written in
    `agents`. The block of one `agent` has limits, `at`, `on` and `tool` lines; all else is that of the policy.

    Bad:

        policy "team" lang 1
        limits {
          llm_calls  20  per subtree
          depth      2
        }

    Good:

        policy "team" lang 1
        limits {
          llm_calls  20  per subtree
        }
        agents {
          depth  2
        }

    Fix: safe: it writes the header of a block without a name above its lines, where a `}` ends them. All other
    lines have to be moved by hand.

P107 step without `then`
    The steps of a ladder each begin with `then`: `tool_iterations 5 then extend 3 once then finalize`.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  finalize
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }

    Fix: safe: it writes the `then`.

P108 reserved word as a name
    `then`, `stop`, `finalize`, `retry`, `fallback`, `extend` and `reply` are verbs everywhere and cannot name a
    `param` or `let`. Every other word can.

    Bad:

        policy "chat" lang 1
        let stop = 20
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        let most = 20
        limits {
          llm_calls  most
        }

P109 notation of another language
    A limit is written `llm_calls 20`, without `=` or `:`. A statement ends with its line, without `;`. Comments
    start with `#`. Ranges are written `1s..30s`, thousands `1_000` or `1k`, units right behind their number.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls = 20
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: safe or unsafe: it writes what this language writes. Only a comment between `/*` and `*/` is a guess, for
    there may be a statement behind it.

P110 unknown escape in a text
    In a text, `\"` is a quote, `\\` a backslash, `\n` a line end, `\t` a tab and `\u{1F600}` a character by its
    number.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize "Answer now\."
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize "Answer now.\nBe brief."
        }

    Fix: unsafe: it writes a second backslash, though another escape may be meant.

P111 no `policy` line at the top
    The first statement of every file says what it is and in which version of the language it is written:
    `policy "support-agent" lang 1`.

    Bad:

        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: safe or unsafe: a `policy` line further down is moved to the top; one that is missing is written, with
    the name of the file. That is unsafe for an empty file, which would become a policy without limits, and where
    the file's name is not known.

P112 unknown version of the language
    The number behind `lang` tells how the file is to be read. A newer file needs a newer version of this
    program; reading it by older rules could give it another meaning.

    Bad:

        policy "chat" lang 2
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: unsafe: it writes the version that this program reads. The file may then mean something else.

P115 too many syntax errors
    After 200 syntax errors the rest of a file is not read. It is probably not a policy.
"""
