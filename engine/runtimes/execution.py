"""Going through a run on an engine: under the policy that it was begun with, from its order to its end.

Engines call ``execute`` again whenever they go through a run's record; it comes to the same each time.
"""

from __future__ import annotations

from functools import lru_cache

from engine.core.policy import Policy
from engine.core.vocabulary import SEMANTICS_VERSION
from engine.run.agents import Role
from engine.run.contents import Contents
from engine.run.driver import Driver
from engine.run.effects import Moved, Suspended
from engine.run.loop import drive, withdrawn
from engine.run.records import differing_host, policy_change, record_of
from engine.run.timers import Clock, system_clock
from engine.runtimes.effects import DurableEffects
from engine.runtimes.environment import Environment
from engine.runtimes.performing import Performing
from engine.runtimes.records import End, Order
from engine.runtimes.texts import Texts


class OtherCoreError(RuntimeError):
    """A run was begun with semantics that this worker does not have: to be tried again, by another worker."""


class Worker:
    """What one process brings to runs on an engine: the policy, clients and tools of a ``driver``."""

    def __init__(self, driver: Driver, clock: Clock = system_clock) -> None:
        self.driver = driver
        self._clock = clock
        self._under = lru_cache(maxsize=64)(self._role_under)

    def refusal(self, order: Order) -> str:
        """Why a run that is about to begin is not taken here, in words; empty if it is.

        Asked once, before the first event, and the answer is put on record: later the run goes on under the policy
        that it has with it, whatever this worker's own is.
        """
        role, spec = self.driver.role, order.spec
        if order.agent:
            return ""  # it was the run above it that was taken
        if spec.fingerprint != role.compiled.fingerprint:
            change = policy_change(record_of(spec, order.host), role.compiled) or "the semantics"
            return (
                f"run {spec.run} was begun under a policy with fingerprint {spec.fingerprint[:12]}, this worker "
                f"has one with {role.compiled.fingerprint[:12]}: {change}"
            )
        if change := differing_host(order.host, role.compiled.policy, role.host):
            return f"run {spec.run} was begun with another host: {change}"
        return ""

    def role(self, order: Order) -> Role:
        """What the run's agent is here, under the run's own policy. Raises ``OtherCoreError``."""
        if order.semantics != SEMANTICS_VERSION:
            raise OtherCoreError(
                f"run {order.spec.run} was begun with semantics {order.semantics}, and this worker has "
                f"{SEMANTICS_VERSION}: it waits for a worker that has them"
            )
        return self._under(order.agent, order.spec.policy)

    def performing(self, order: Order, contents: Contents) -> Performing:
        """What carries the jobs of a run out in this process."""
        return Performing(self.role(order), order.spec, contents, self._clock)

    def _role_under(self, agent: str, policy: str) -> Role:
        role = self.driver.role
        for name in agent.split("/") if agent else ():
            role = role.below(name)
        return role.under(Policy.model_validate_json(policy))


async def execute(
    order: Order, worker: Worker, environment: Environment, texts: Texts, contents: Contents, *, follow: bool = True
) -> End | Order:
    """Drive a run to its end, or to the order with which it goes on in a fresh execution.

    ``texts`` and ``contents`` are those of the order, shared with whatever performs its jobs in this process.
    ``follow``: tell the driver's decision log and telemetry.

    Raises:
        OtherCoreError: see ``Worker.role``.
        ProtocolError: the record does not belong to what this worker decides. The run must not go on here.
    """
    role = worker.role(order)
    listener = worker.driver.followers.of(None, role, order.spec, contents.get) if follow else None
    effects = DurableEffects(order, role, environment, texts, contents, listener)
    state = order.state or role.compiled.initial
    if order.withdrawn:
        return effects.end(withdrawn(order.spec, role.compiled.step, state, effects, order.withdrawn))
    finished = await drive(order.spec, role.compiled.step, state, effects, order.position)
    assert not isinstance(finished, Suspended)  # an engine waits for people too
    if isinstance(finished, Moved):
        return effects.moved(finished)
    await effects.settled()
    return effects.end(finished)
