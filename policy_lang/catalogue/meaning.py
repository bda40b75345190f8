"""Pages about P3xx that are found while files are read and merged. Those about bases have a
module of their own, and the other P3xx are rules, each with its own page.

See the package for how they are written.
"""

PAGES = r"""
P303 alternating window odd or too small
    `trip alternating W` looks for A, B, A, B among the last W failures: W is even and at least 4.

    Bad:

        policy "search" lang 1
        breaker "search_*" {
          trip   alternating 3
          reset  never
        }

    Good:

        policy "search" lang 1
        breaker "search_*" {
          trip   alternating 4
          reset  never
        }

    Fix: unsafe: it writes the next larger window that is possible.

P304 breaker that trips at once
    One failure is no row of failures with equal arguments, and one result repeats nothing. `failures 1` says that
    a single failure is enough.

    Bad:

        policy "search" lang 1
        breaker "search_*" {
          trip   same_args 1
          reset  never
        }

    Good:

        policy "search" lang 1
        breaker "search_*" {
          trip   same_args 3
          reset  never
        }

    Fix: unsafe: it writes `2`, the smallest number that makes sense.

P306 fallback without a client to go to
    A chain of `fallback` names each client once, and each client is one that the host has. Which it has is known
    where clients are declared: `--clients small,large`, or tables `[clients.NAME]` in a file `policy.toml` beside
    the policy. A client that has failed in a call is not asked again in it, so a later `fallback` to the same
    clients is never taken.

    Bad:

        policy "chat" lang 1
        on llm_failure timeout  fallback large -> large  then stop

    Good:

        policy "chat" lang 1
        on llm_failure timeout  fallback large -> spare  then stop

    Fix: safe or unsafe: it removes a client that stands in a chain for the second time. A client that may be
    meant is a guess.

P310 threshold that is never of use
    A threshold is a percentage from 1% to 99% of a resource that has a limit. At 100% the limit's own ladder
    acts.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        at 80% of tokens  warn

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
          tokens     200k
        }
        at 80% of tokens  warn

    Fix: safe or unsafe: it removes a threshold of a limit that has none. `99%` for a larger percentage is a
    guess.

P311 empty text
    An empty instruction tells the model nothing. `finalize` alone uses the default instruction.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize ""
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }

    Fix: safe: it removes the empty text, so that the default one is used.

P312 `retry` where trying again does not help
    A wrong key, a request that the provider refuses, a filtered answer and a conversation that is too long are the
    same a second later. A `retry` that is reached through a broader reason, such as `*` or `provider`, is skipped
    for the first three without being told. A larger model may help where the conversation is too long: `fallback`.

    Bad:

        policy "chat" lang 1
        on llm_failure auth  retry 3  then stop

    Good:

        policy "chat" lang 1
        on llm_failure auth  fallback spare  then stop

    Fix: unsafe: it removes the `retry` if it is of no use for any reason of its rule. The ladder is another then.

P313 unreachable step
    `stop` and `finalize` end the ladder of a limit; nothing behind them is ever taken, unless a `consult` stands before
    them: it chooses among all steps behind it by their verb, and gets the first of that verb. `finalize using NAME` may
    be followed by more: if the host's function fails, the next step is taken. In a ladder for failed calls `finalize`
    is skipped once a run had its final call, so steps may follow it, but no second `finalize`. A `consult` with none
    but `stop` behind it is asked for nothing.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then stop  then finalize
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20  then finalize
        }

    Fix: safe or unsafe: it removes the step. That is unsafe where the step may be meant to stand further up.

P320 two rules for one reason
    A failed call has one ladder, that of the most specific rule that names its reason. Two rules of one file for the
    same reason leave open which; write all steps in one. A file that extends another may have its own rule: it takes
    the place of the base's rule for that reason.

    Bad:

        policy "chat" lang 1
        on llm_failure timeout           retry 2         then stop
        on llm_failure timeout, network  fallback spare  then stop

    Good:

        policy "chat" lang 1
        on llm_failure timeout  retry 2         then fallback spare  then stop
        on llm_failure network  fallback spare  then stop

    Fix: safe: it removes a reason that its rule names twice. Which of two rules is meant is yours to say.

P323 test that expects nothing
    A test without `expect` passes whatever the policy decides, as long as its events can happen. What it shows is said
    by `expect`, about the event above it.

    Bad:

        policy "chat" lang 1
        test "a search" {
          when  call
          when  model asks "search"
        }

    Good:

        policy "chat" lang 1
        test "a search" {
          when    call
          when    model asks "search"
          expect  run "search"
        }

P325 `cost` without prices
    Cost is tokens times prices. Without a `prices` block nothing could be counted and the limit would never
    act.

    Bad:

        policy "chat" lang 1
        limits {
          cost  $2.50
        }

    Good:

        policy "chat" lang 1
        limits {
          cost  $2.50
        }
        prices {
          "large-1"  input $2  output $8  per 1M
        }

P329 `extend` or `ask` on `llm_calls`
    `llm_calls` is the strict outer budget of a run: whatever else is extended or granted, it is not.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20  then extend 5 once  then finalize
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  25  then finalize
        }

P330 `finalize` without a reserve
    Tokens, cost and time are known only after they are spent. A final call inside such a limit is possible only
    if something is kept back for it: `tokens 200k reserve 4k then finalize`.

    Bad:

        policy "chat" lang 1
        limits {
          tokens  200k  then finalize
        }

    Good:

        policy "chat" lang 1
        limits {
          tokens  200k  reserve 4k  then finalize
        }

    Fix: unsafe: it writes a usual reserve. How much a final call takes is yours to say.

P335 decisions that depend on what ends first
    By default a breaker looks at outcomes when a round is complete, in the order in which the model asked for its
    tools, so that the same round always leads to the same decisions. With `apply now` a tool that has just failed
    is refused sooner, and which calls are refused depends on the order in which tools happened to end.

    Bad:

        policy "search" lang 1
        breaker "search_*" {
          trip   failures 3
          reset  never
          apply  now
        }

    Good:

        policy "search" lang 1
        breaker "search_*" {
          trip   failures 3
          reset  never
        }

    Fix: unsafe: it removes the line, and decisions may be others then.

P336 `concurrent 0`
    Every agent would wait for a place to run in, for ever. `depth 0` allows no agents.

    Bad:

        policy "team" lang 1
        agents {
          concurrent  0
        }

    Good:

        policy "team" lang 1
        agents {
          concurrent  1
        }
"""
