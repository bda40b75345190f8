"""Which steps of a ladder can ever be taken: those that the ladder comes to, and those that a consultant can choose.

A consultant names a step by its verb and gets the first of that verb behind itself, wherever that stands: also behind
the `stop` or `finalize` that ends the ladder for everybody else. What the steps mean is not known here.
"""

from __future__ import annotations

from policy_lang import tree


class Reach:
    """Looks at the steps of one ladder in their order. ``final_ends``: does a `finalize` end it too?"""

    def __init__(self, final_ends: bool) -> None:
        self._ending = tree.Stop | tree.Finalize if final_ends else tree.Stop
        self._ended: tree.Step | None = None
        self._chosen: dict[str, tree.Step] | None = None
        """What the last consultant gets for each verb; ``None`` if there was none."""

    def barrier(self, step: tree.Step) -> tuple[tree.Step, str] | None:
        """The step because of which this one can never be taken, and why if that step does not end the ladder."""
        verb, chosen = step.keyword, self._chosen
        if self._ended is not None:
            if chosen is None:
                return self._ended, ""
            if verb in chosen:
                return chosen[verb], f"a consultant's `{verb}` is this one"
        if isinstance(step, tree.Consult):
            self._chosen = {}
        elif chosen is not None:
            chosen.setdefault(verb, step)
        if self._ended is None and isinstance(step, self._ending):
            self._ended = step
        return None
