"""Pages about P3xx that concern what a file makes of those it extends.

See the package for how they are written.
"""

PAGES = r"""
P315 `override` that changes nothing
    `override` marks that a line loosens a base's limit. On a line that does not, it would hide a later
    loosening.

    Bad:

        policy "chat" lang 1
        limits {
          override llm_calls  20
        }

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }

    Fix: safe or unsafe: it removes the `override`. That is unsafe where a number is a name: it may be another for
    a host that sets a `param`.

P316 change of a locked limit
    A limit marked `locked` cannot be changed by files that extend it, neither loosened nor tightened, and not be
    loosened for one agent. A limit of the same resource in another scope can be added.

    Bad:

        policy "chat" lang 1
        extends "base.policy"
        limits {
          override llm_calls  40
        }
        # --- base.policy
        policy "base" lang 1
        limits {
          locked llm_calls  20
        }

    Good:

        policy "chat" lang 1
        extends "base.policy"
        limits {
          llm_calls  40  per thread
        }
        # --- base.policy
        policy "base" lang 1
        limits {
          locked llm_calls  20
        }

    Fix: unsafe: it removes the line, and with it the number that somebody wanted.

P338 loosening without `override`
    A file may tighten what it extends, and says `override` where it loosens. Looser is a larger maximum, or a
    larger maximum with its extension and with what people may grant, or a `wall` that no longer goes on `counting
    approvals`. The limits of one run in the block of an `agent` replace those of the policy for this agent, and need
    `override` in the same way.

    Bad:

        policy "chat" lang 1
        extends "base.policy"
        limits {
          llm_calls  40
        }
        # --- base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        extends "base.policy"
        limits {
          override llm_calls  40
        }
        # --- base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

    Fix: unsafe: it writes `override`, which is to be written by somebody who has thought about it.

P339 other price than the base's
    A base's price cannot be changed: lowering it would loosen the base's `cost` limit unseen.

    Bad:

        policy "chat" lang 1
        extends "base.policy"
        prices {
          "large-1"  input $1  output $8  per 1M
        }
        # --- base.policy
        policy "base" lang 1
        limits {
          cost  $2
        }
        prices {
          "large-1"  input $2  output $8  per 1M
        }

    Good:

        policy "chat" lang 1
        extends "base.policy"
        prices {
          "small-1"  input $1  output $2  per 1M
        }
        # --- base.policy
        policy "base" lang 1
        limits {
          cost  $2
        }
        prices {
          "large-1"  input $2  output $8  per 1M
        }
"""
