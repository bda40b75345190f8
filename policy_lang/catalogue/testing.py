"""Pages about P5xx: tests and claims. See the package for how they are written."""

PAGES = r"""
P501 `given` that is no counter
    `given` says what is used before the first event. The time of one attempt begins anew with each attempt, so nothing
    of it can be used before: let it pass with `when`.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls     20
          attempt_wall  30s
        }
        test "a slow model" {
          given   attempt_wall 29s
          when    call
          expect  call
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls     20
          attempt_wall  30s
        }
        test "a slow model" {
          when    call
          when    30s pass
          expect  stop because timeout
        }

P502 tool or agent that the test has not named before
    A tool can end, and be expected to run, once the model has asked for it; an agent can end once it was spawned. A
    name that no earlier line of the test has is most often a typo. An agent may have any name, but one that is a typo
    away from an `agent` block is taken for one.

    Bad:

        policy "chat" lang 1
        test "a search" {
          when    call
          when    model asks "search"
          expect  run "serach"
        }

    Good:

        policy "chat" lang 1
        test "a search" {
          when    call
          when    model asks "search"
          expect  run "search"
        }

    Fix: unsafe: it writes the tool or agent that may be meant.

P503 client that the policy never switches to
    `expect fallback` names a client of a `fallback` or of a threshold with `use`, in this file or in a base.

    Bad:

        policy "chat" lang 1
        on llm_failure overloaded  fallback large
        test "a crowd" {
          when    call
          when    model fails overloaded
          expect  fallback lagre
        }

    Good:

        policy "chat" lang 1
        on llm_failure overloaded  fallback large
        test "a crowd" {
          when    call
          when    model fails overloaded
          expect  fallback large
        }

    Fix: unsafe: it writes the client that may be meant.

P504 `given` after an event
    `given` says where the run begins, so it stands above the first `when` and the first `expect`.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        test "the last call" {
          when    call
          given   llm_calls 19
          expect  call
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        test "the last call" {
          given   llm_calls 19
          when    call
          expect  call
        }

    Fix: safe: it moves the line above the first event.

P505 word that no claim has
    A fact of a claim is about a counter, about the `phase` of the run or about the `last` decision; `at_most` and
    `never` are about what a run does: `finalize`, `extend`, `fallback`, `retry`, `call` and `tool_call`. The phases are
    `idle`, `calling`, `final`, `tools`, `suspended`, `stopping` and `ended`, the decisions those of the engine.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }
        verify "tools stop in time"  always phase is finished implies last is not call

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }
        verify "nothing after the end"  always phase is ended implies last is not call

    Fix: unsafe: it writes the word that may be meant.

P506 fact about what no run counts
    A fact compares what a run has used of a resource. The time of one attempt is none of these, for it begins anew
    with each attempt. How deep a tree is and how many of its agents run at a time is no use of one run, and that both
    stay within what `agents` says is checked for every policy.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls     20
          attempt_wall  30s
        }
        verify "no slow model"  always attempt_wall <= 30s

    Good:

        policy "chat" lang 1
        limits {
          llm_calls     20
          llm_attempts  30
        }
        verify "no more than this"  always llm_attempts <= 30

P507 fact in the form of another
    A counter is compared with an amount, by `<=`, `>=`, `<`, `>`, `=` or `!=`. A phase and a decision are words: one
    is it, or is not.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }
        verify "the last call"  always llm_calls = 20 implies phase != calling

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }
        verify "the last call"  always llm_calls = 20 implies phase is not calling

    Fix: unsafe: it writes the comparison that may be meant.
"""
