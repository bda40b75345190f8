"""What `make demo` shows: a policy, what it says in English, a run that meets its budget, and what the server received.

The model is rehearsed (it plays a script), everything else is real: the command, the HTTP, the ledger of requests.
Fails if the run does not do what the policy says.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from engine.rehearsal import Entry, Rehearsal

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = "spec_examples/call_limits"
POLICY = f"{EXAMPLES}/six_five_tools_only.policy"
TOOLS = f"{EXAMPLES}/tools.py"
QUESTION = "What is the answer?"
CALLS = 6
"""What the policy allows."""


def main() -> int:
    """0 if the run ended in a final answer inside its budget, as counted by the server."""
    title(f"The policy, {POLICY}")
    show(statements())

    title("What it says: policy explain")
    reading = policy("explain", POLICY)
    show(reading.stdout.split("\n\n")[1])

    title("A run under it, with a model that would search for ever: policy run")
    run, entries = rehearsed()
    show(run.stdout)

    title("What the model's server received, by its own count")
    show("\n".join(map(described, entries)))
    return verdict(run.returncode, entries)


def statements() -> str:
    """The policy without the comment at its head."""
    text = (ROOT / POLICY).read_text(encoding="utf-8")
    return text[text.index("policy ") :]


def rehearsed() -> tuple[subprocess.CompletedProcess[str], list[Entry]]:
    """One run against a rehearsal server: what the command printed, and what the server received."""
    with Rehearsal(ROOT / POLICY.replace(".policy", ".toml")) as server:
        model = ("--model", "openai:rehearsed", "--base-url", f"{server.url}/v1")
        run = policy("run", POLICY, QUESTION, *model, "--tools", TOOLS)
        return run, list(server.ledger)


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m\n" if sys.stdout.isatty() else f"\n{text}\n", flush=True)


def show(text: str) -> None:
    print(textwrap.indent(text.strip("\n"), "    "), flush=True)


def policy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``policy`` as a user would; what it prints on both channels, in order."""
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, cwd=ROOT, text=True, timeout=60, check=False, **both)


def described(entry: Entry) -> str:
    """One line for a request, and for one without tools the message it ends with."""
    tools = f"offers {', '.join(entry.offered)}" if entry.offered else "offers no tools"
    line = f"request {entry.number}  {tools:<16} -> the model {entry.answered}"
    messages = entry.body.get("messages", []) if isinstance(entry.body, dict) else []
    if entry.offered or not messages:
        return line
    return f"{line}\n           its last message: {messages[-1].get('content')!r}"


def verdict(code: int, entries: list[Entry]) -> int:
    """Hold what was seen against what the policy promises."""
    offered = [bool(entry.offered) for entry in entries]
    kept = code == 0 and offered == [True] * (CALLS - 1) + [False]
    if kept:
        print(f"\n{CALLS} requests of {CALLS} allowed, the last one without tools: the answer came inside the budget.")
        return 0
    print(f"\nthis is not what the policy says: {len(entries)} requests, exit code {code}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
