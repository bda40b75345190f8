"""The services that a worker offers to Restate: a workflow for runs, and an object in which long ones go on.

A run is the workflow's main handler, so that its key is begun once. What people send fulfils a promise of it, which
keeps the value for whoever asks later. After ``most`` happenings the run goes on as the object of its key, whose
handler sends itself what is left of the run, with a journal that begins anew each time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import restate
from msgspec import Struct
from restate.exceptions import RetryableError
from restate.server_context import restate_context_is_replaying

from engine.core.vocabulary import SEMANTICS_VERSION
from engine.run.contents import Contents
from engine.run.effects import ProtocolError
from engine.run.timers import Clock, system_clock
from engine.runtimes.execution import OtherCoreError, Worker, execute
from engine.runtimes.records import ChildOver, End, Order, decode, encode
from engine.runtimes.restate.addresses import OVER, REFUSED, continued
from engine.runtimes.restate.environment import BYTES, REPORT, Future, RestateEnvironment
from engine.runtimes.texts import Texts

MOVED: Final = "moved"
"""Set in the workflow's state once the run goes on in another execution."""

_RAW: Final[dict[str, Any]] = {"input_serde": BYTES, "output_serde": BYTES}
_RETRIES: Final = restate.InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    exponentiation_factor=2.0,
    max_interval=timedelta(seconds=5),
    max_attempts=10_000_000,  # a worker may be away for days; the server's own default gives up after minutes
)


class Settings(Struct, frozen=True):
    """How runs are carried out: the same for all workers of a service.

    ``most`` happenings are in one journal (0: any number). ``idle`` is how long (ms) a run keeps its place in a
    worker's memory while nothing happens; where it waits for a job, what people send is heard only until then. ``kept``
    is how long (ms) the end of a run can be asked for.
    """

    service: str
    most: int
    idle: int
    kept: int


class _Continues(Struct, frozen=True):
    """A run on its way to its next execution, the ``number``th."""

    number: int
    order: Order


def services(
    worker: Worker, settings: Settings, clock: Clock = system_clock
) -> tuple[restate.Workflow, restate.VirtualObject]:
    """The services of a worker, to be bound to an endpoint."""
    runs = _Runs(worker, settings, clock)
    return runs.workflow(), runs.continuing()


class _Runs:
    def __init__(self, worker: Worker, settings: Settings, clock: Clock) -> None:
        self._worker = worker
        self._settings = settings
        self._clock = clock
        self._service = settings.service
        self._continued = continued(settings.service)

    def workflow(self) -> restate.Workflow:
        service, continued = self._service, self._continued
        kept = timedelta(milliseconds=self._settings.kept)
        workflow = restate.Workflow(service, **self._common(), journal_retention=timedelta(0))

        @workflow.main(name="run", workflow_retention=kept, **_RAW)
        async def run(context: restate.WorkflowContext, body: bytes) -> bytes:
            order = decode(body, Order)
            if not restate_context_is_replaying.get() and (why := self._worker.refusal(order)):
                raise restate.TerminalError(why, REFUSED)  # nothing is on record yet: it has not begun

            def promised(name: str) -> Future:
                return context.promise(name, serde=BYTES).value()

            ended = await self._executed(context, order, promised, 0)
            if isinstance(ended, End):
                return encode(ChildOver(ended.at, ended)).encode()
            context.set(MOVED, b"1", BYTES)
            context.generic_send(continued, "go", _encoded(1, ended), key=context.key())
            return await promised(OVER)

        @workflow.handler(name="signal", **_RAW)
        async def signal(context: restate.WorkflowSharedContext, body: bytes) -> bytes:
            name, _, value = body.partition(b"\n")
            promise = context.promise(name.decode(), serde=BYTES)
            if await promise.peek() is None:  # the first answer counts
                await promise.resolve(value)
            return b""

        @workflow.handler(name="promised", **_RAW)
        async def promised(context: restate.WorkflowSharedContext, body: bytes) -> bytes:
            return await context.promise(body.decode(), serde=BYTES).value()

        @workflow.handler(name="peek", **_RAW)
        async def peek(context: restate.WorkflowSharedContext) -> bytes:
            shown = await context.get(REPORT, serde=BYTES) or b""
            if await context.get(MOVED, serde=BYTES):
                return await context.generic_call(continued, "peek", b"", key=context.key()) or shown
            return shown

        return workflow

    def continuing(self) -> restate.VirtualObject:
        service, continued = self._service, self._continued
        thing = restate.VirtualObject(continued, **self._common(), journal_retention=timedelta(0))

        @thing.handler(name="go", **_RAW)
        async def go(context: restate.ObjectContext, body: bytes) -> bytes:
            going, key = decode(body, _Continues), context.key()

            def promised(name: str) -> Future:
                return context.generic_call(service, "promised", name.encode(), key=key)

            ended = await self._executed(context, going.order, promised, going.number)
            if isinstance(ended, End):
                over = encode(ChildOver(ended.at, ended))
                context.generic_send(service, "signal", f"{OVER}\n{over}".encode(), key=key)
                context.clear_all()
            else:
                context.generic_send(continued, "go", _encoded(going.number + 1, ended), key=key)
            return b""

        @thing.handler(name="peek", kind="shared", **_RAW)
        async def peek(context: restate.ObjectSharedContext) -> bytes:
            return await context.get(REPORT, serde=BYTES) or b""

        return thing

    async def _executed(self, context: restate.ObjectContext, order: Order, promised: Any, number: int) -> End | Order:
        """One execution of a run. What this worker must not go on with is left for another one."""
        texts = Texts(dict(order.contents))
        contents = Contents(texts)
        try:
            environment = RestateEnvironment(
                context,
                self._worker.performing(order, contents),
                promised,
                service=self._service,
                number=number,
                most=self._settings.most,
                clock=self._clock,
            )
            return await execute(order, self._worker, environment, texts, contents)
        except (OtherCoreError, ProtocolError) as exc:
            raise RetryableError(str(exc)) from None

    def _common(self) -> dict[str, Any]:
        compiled = self._worker.driver.role.compiled
        return {
            "metadata": {"policy": compiled.policy.name, "fingerprint": compiled.fingerprint,
                         "semantics": str(SEMANTICS_VERSION)},
            "inactivity_timeout": timedelta(milliseconds=self._settings.idle),
            "abort_timeout": timedelta(days=7),  # it would end jobs that take longer, and begin them again
            "invocation_retry_policy": _RETRIES,
        }  # fmt: skip


def _encoded(number: int, order: Order) -> bytes:
    return encode(_Continues(number, order)).encode()
