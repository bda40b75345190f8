"""reserve larger than any answer

What is kept back of `output_tokens` is for one final call. Where the settings say how long the longest answer of each
client can be, a reserve above that is never used up.

Why: that much of the limit is lost to every run.

Bad:

    policy "chat" lang 1
    limits {
      output_tokens  100k  reserve 30k  then finalize
    }
    # --- policy.toml
    [clients.small]
    wire = "openai"
    model = "small-1"
    max_output = 8_000

Good:

    policy "chat" lang 1
    limits {
      output_tokens  100k  reserve 8k  then finalize
    }
    # --- policy.toml
    [clients.small]
    wire = "openai"
    model = "small-1"
    max_output = 8_000

Fix: unsafe: it writes the longest answer that there can be, so that more is left for other calls.
"""

from __future__ import annotations

from policy_lang.quantities import COUNT, text_of
from policy_lang.report import Report
from policy_lang.rules.shared import written
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    clients = list((policy.around.clients or {}).values())
    answers = [client.max_output for client in clients if client.max_output is not None]
    if not clients or len(answers) < len(clients):
        return
    most = max(answers)
    for line in policy.lines:
        if line.data["resource"] == "output_tokens" and line.reserve and (line.reserve.value or 0) > most:
            shown = text_of(most, COUNT)
            report.warn(
                "P349",
                f"no client of the settings answers with more than {shown} tokens",
                line.reserve.span,
                "more than one answer can take",
                help=f"write `reserve {shown}`",
                fix=written(line.reserve, shown),
            )
