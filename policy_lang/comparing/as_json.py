"""A comparison as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from engine.core.decisions import encode_decision
from engine.core.events import encode_event
from engine.core.policy import Origin
from engine.verify.both import Parted
from engine.verify.compare import Compared, event_word
from engine.verify.outlooks import Outlook
from policy_lang.comparing.structure import Row
from policy_lang.comparing.verdict import Difference
from policy_lang.comparing.versions import Version

VERSION = 1
"""Of the document: what is added to it leaves this as it is."""


def document(made: Sequence[Difference]) -> str:
    """All files with all differences."""
    return json.dumps({"version": VERSION, "policies": [_file(one) for one in made]}, indent=2, ensure_ascii=False)


def _file(made: Difference) -> dict[str, Any]:
    return {
        "old": _version(made.old),
        "new": _version(made.new),
        "result": made.result,
        "written": [_row(row) for row in made.rows],
        "decided": [_compared(compared) for compared in made.compared],
    }


def _version(version: Version) -> dict[str, Any]:
    errors = [{"code": e.code, "message": e.message, "line": e.primary.span.line} for e in version.errors]
    return {"name": version.name, "errors": [] if version.missing else errors, "missing": version.missing}


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "change": row.change,
        "old": row.old or None,
        "new": row.new or None,
        "old_line": _origin(row.old_origin),
        "new_line": _origin(row.new_origin),
        "compared_by": {"searched": "runs", "number": "number", "words": "nothing"}[row.weight],
    }


def _origin(origin: Origin | None) -> str | None:
    return str(origin) if origin else None


def _compared(c: Compared) -> dict[str, Any]:
    return {
        "agent": c.agent,
        "result": c.result,
        "why": c.why,
        "differences": [{"allows": shown.direction, **_run(shown.run)} for shown in c.shown],
        "not_shown": list(c.unplayed),
        "assumptions": list(c.assumptions),
        "effort": {
            "states": c.effort.states,
            "transitions": c.effort.transitions,
            "depth": c.effort.depth,
            "seconds": round(c.effort.seconds, 3),
        },
    }


def _run(run: Parted) -> dict[str, Any]:
    return {
        "event": event_word(run.event),
        "old": _look(run.old),
        "new": _look(run.new),
        "run": [
            {
                "event": json.loads(encode_event(one.event)),
                "old": json.loads(encode_decision(one.decision)),
                "new": json.loads(encode_decision(other.decision)),
            }
            for one, other in zip(run.first, run.second, strict=True)
        ],
    }


def _look(look: Outlook) -> dict[str, Any]:
    return {"decision": str(look), "rank": look.rank}
