"""One sentence for each limit: what it allows, and what happens there, step by step of its ladder.

Reads the limits as the machine sees them (``Plan``), so that steps which can never be reached are
not told. Decides nothing; what it claims is tested against ``step``.
"""

from __future__ import annotations

from engine.core.machine.plan import Plan
from engine.core.policy import Ask, Breaker, Consult, Extend, Finalize, Limit, Policy, Step, Stop
from policy_lang.explain_words import NOUNS, SUBJECTS, amount, at_most, ended
from policy_lang.names import listed
from policy_lang.texts import quote

_ENDS = "the run ends as incomplete"
_STOPPING = "ending the run as incomplete once more is needed"


def unlimited(limit: Limit) -> str:
    """The sentence of a limit that says ``unlimited``."""
    if limit.resource == "attempt_wall":
        return "One attempt at a model call may take any time."
    noun = {"cost": "The cost", "wall": "The time"}.get(limit.resource) or NOUNS[limit.resource].many.capitalize()
    verb = "is" if limit.resource in ("cost", "wall") else "are"
    return f"{noun} {verb} counted, not limited."


def attempt_wall(milliseconds: int) -> str:
    """The sentence of ``attempt_wall``."""
    longest = amount("attempt_wall", milliseconds)
    return f"One attempt at a model call may take {longest}; a longer one has failed with `timeout`."


def sentence(plan: Plan, policy: Policy) -> str:
    """The sentence of a limit with a maximum."""
    return _Telling(plan, policy).sentence()


def instruction(step: Finalize) -> str:
    """Where the text of a final call comes from."""
    if step.using:
        return f"the instruction that the host's function `{step.using}` returns"
    return f"the instruction {quote(step.text)}" if step.text else "the default instruction"


def final_call(step: Finalize, policy: Policy) -> str:
    """How a final call is made."""
    tools = "with the tools forbidden" if policy.finalization.tools == "forbid" else "without tools"
    return f"made {tools} and with {instruction(step)}"


def final_step(breaker: Breaker) -> Finalize:
    """The final call that a breaker asks for, as a step."""
    return Finalize(text=breaker.text, using=breaker.using)


class _Telling:
    """The clauses of one limit. ``maximum`` grows while its extension is told."""

    def __init__(self, plan: Plan, policy: Policy) -> None:
        self.plan = plan
        self.resource = plan.resource
        self.maximum = plan.maximum
        self.reactive = policy.finalization.mode == "reactive"
        self.policy = policy

    def sentence(self) -> str:
        limit, plan = self.plan.limit, self.plan
        head = f"{SUBJECTS[limit.scope or 'run']} {at_most(self.resource, plan.maximum)}"
        if self.resource == "wall" and plan.maximum != limit.max:
            head += f", its extension of {amount('wall', plan.maximum - (limit.max or 0))} included"
        if limit.counting_approvals:
            head += ", time in which only people are awaited included"
        if limit.atomic:
            head += ", and none of a round that does not fit as a whole"
        return ended(f"{head}{self._tail(0)}{self._idle_reserve()}")

    def _tail(self, position: int) -> str:
        """What happens at the limit, from this step of the ladder on."""
        step = self.plan.steps[position] if position < len(self.plan.steps) else Stop()
        if isinstance(step, Stop) or self._can_never_be_final():
            return f"; {self._stop()}"
        if isinstance(step, Extend):
            return self._extended(step) + self._tail(position + 1)
        if isinstance(step, Consult):
            return self._consulted(step, position)
        if isinstance(step, Ask):
            return self._asked(step) + self._without_grant(position + 1)
        failing = f"; if `{step.using}` fails{self._otherwise(position + 1)}" if step.using else ""
        return f"; {self._final(step)}{failing}"

    def _consulted(self, step: Consult, position: int) -> str:
        """The host chooses among the later steps; where the ladder goes on behind the chosen one is not repeated."""
        # Behind the last step stands `stop`, which can be chosen like any other. Of each verb the first is chosen.
        choices = (*self.plan.steps[position + 1 :], Stop())
        verbs = [other.do for other in choices]
        later = [other for place, other in enumerate(choices) if other.do not in verbs[:place]]
        options = [self._option(other) for other in later]
        when = "when {} used up".format("it is" if self.maximum == 1 else "they are")
        if self.resource in ("llm_calls", "llm_attempts"):
            when = "when one is left" if self.maximum > 1 else "before it is made"
        elif not self.plan.counted:
            when = "when too little is left for another call"
        elif self.maximum == 0:
            when = "before the first model call"
        if len(options) == 1:
            return f"; {when}, the host's function `{step.name}` is asked, and {_ENDS} whatever it says"
        chooses = f"the host's function `{step.name}` chooses between {listed(options, 'and')}"
        told = f"; {when}, {chooses} (the first, if it fails or chooses none)"
        if self.resource in ("tool_calls", "unknown_tools"):
            told += f"; if a call does not fit before that, it is answered, and once its round is complete {_ENDS}"
        return told

    def _option(self, step: Step) -> str:
        match step:
            case Extend():
                by = min(step.by, self.plan.maximum)
                self.maximum += by
                return f"extending it once by {amount(self.resource, by)}"
            case Finalize():
                return f"a final call {final_call(step, self.policy)}"
            case Ask():
                most = step.up_to or self.plan.maximum
                self.maximum += most * step.times
                return f"asking a person for up to {amount(self.resource, most)} more"
            case Consult(name=name):
                return f"asking the host's function `{name}`"
            case Stop():
                return _STOPPING

    def _can_never_be_final(self) -> bool:
        """A limit of no calls leaves none for the final one."""
        return self.resource in ("llm_calls", "llm_attempts") and self.plan.maximum == 0

    def _otherwise(self, position: int) -> str:
        """What happens if the host's function of the step before has failed."""
        step = self.plan.steps[position] if position < len(self.plan.steps) else Stop()
        if isinstance(step, Finalize):
            again = f"; if `{step.using}` fails too{self._otherwise(position + 1)}" if step.using else ""
            return f", it is made with {instruction(step)}{again}"
        return f", {self._tail(position).removeprefix('; ').removeprefix(', ')}"

    def _extended(self, step: Extend) -> str:
        by = min(step.by, self.plan.maximum)
        self.maximum += by
        capped = f" (capped: {amount(self.resource, step.by)} is more than the limit itself)" if by < step.by else ""
        return f", extended once by {amount(self.resource, by)}{capped} when that is not enough" if by else ""

    def _asked(self, step: Ask) -> str:
        """A person may grant more, as often as the step says."""
        most = step.up_to or self.plan.maximum
        self.maximum += most * step.times
        often = (
            "" if step.times == 1 else f" each time, {'twice' if step.times == 2 else f'{step.times} times'} at most"
        )
        grant = f"who may grant up to {amount(self.resource, most)} more{often}"
        return f"; when that is not enough, the run waits for a person, {grant}"

    def _without_grant(self, position: int) -> str:
        return f"; without a grant, {self._tail(position).removeprefix('; ').removeprefix(', ')}"

    # ---- the end of the ladder

    def _stop(self) -> str:
        none = self.maximum == 0
        after_round = f"once its round is complete {_ENDS}"
        match self.resource:
            case "llm_calls" | "llm_attempts":
                return f"when it needs {'one' if none else 'another'}, {_ENDS}"
            case "tool_iterations":
                return f"{'a' if none else 'a further'} round is not run, and {_ENDS}"
            case "tool_calls" if self.plan.limit.atomic:
                return f"such a round is answered instead of executed, and {_ENDS}"
            case "tool_calls":
                return f"{'a' if none else 'a further'} call is answered instead of executed, and {after_round}"
            case "unknown_tools":
                return f"the {'first' if none else 'next'} one is answered too, and {after_round}"
            case "wall":
                return f"when the time is up, whatever is in flight is cancelled, and {_ENDS}"
        return f"when too little is left for another call, {_ENDS}"

    def _final(self, step: Finalize) -> str:
        how = final_call(step, self.policy)
        call = f"the next model call is the final one, {how}"
        match self.resource:
            case "llm_calls" | "llm_attempts":
                return f"{'that one' if self.maximum == 1 else 'the last of them'} is the final call, {how}"
            case "tool_iterations" | "tool_calls":
                return self._final_after_tools(how, call)
            case "unknown_tools":
                return f"after {'the first' if self.maximum == 0 else self._last()}, {call}"
        kept = amount(self.resource, self.plan.limit.reserve)
        if self.resource == "wall":
            return f"calls and tools are cut {kept} earlier, and the rest is for the final call, {how}"
        return (
            f"the last {kept} are kept for the final call, which comes once another call would need them and is {how}"
        )

    def _final_after_tools(self, how: str, call: str) -> str:
        rounds = self.resource == "tool_iterations"
        if self.reactive:
            what = "round" if rounds else "call"
            article = "a" if self.maximum == 0 else "a further"
            return f"{article} {what} is answered instead of {'run' if rounds else 'executed'}, and then {call}"
        if self.maximum == 0:
            return f"its first model call is already the final one, {how}"
        if rounds:
            return f"after {self._last()}, {call}"
        used_up = "when it is used up" if self.maximum == 1 else "when they are used up"
        if self.plan.limit.atomic:
            return f"{used_up}, or a round did not fit, {call}"
        return f"{used_up}, calls left in the round are answered instead of executed, and {call}"

    def _last(self) -> str:
        return "it" if self.maximum == 1 else "the last of them"

    def _idle_reserve(self) -> str:
        reserve = self.plan.limit.reserve
        if not reserve or any(isinstance(step, Finalize) for step in self.plan.steps):
            return ""
        return f" (its reserve of {amount(self.resource, reserve)} is for a final call, and no step asks for one)"


def finalizes(plan: Plan) -> bool:
    """Can this limit lead to a final call?"""
    spent = plan.resource in ("llm_calls", "llm_attempts") and plan.maximum == 0
    return not spent and any(isinstance(step, Finalize) for step in plan.steps)
