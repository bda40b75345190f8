"""``RestateRuntime``: begins runs on Restate, asks how they stand, tells them what people want. All of it is HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

from engine.core.state import Used
from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.run.inputs import Input
from engine.run.result import RunResult
from engine.run.timers import system_clock
from engine.runtimes.listing import Listed
from engine.runtimes.protocol import RuntimeUnreachableError, answered, run_of
from engine.runtimes.records import Cancel, ChildOver, End, Order, Report, decode, encode
from engine.runtimes.restate.addresses import (
    CANCEL,
    INGRESS,
    SERVICE,
    admin_of,
    answer_to,
    checked_service,
    checked_url,
)
from engine.runtimes.starting import ordered

_JSON = {"content-type": "application/json", "accept": "application/json"}
_NOT_YET = 470
_CONNECT_S = 30.0
_PATIENCE_S = 10
_TRIES = 10
_PAUSE_S = 0.5
"""So long a worker may take to say how a run stands: it is asked again after a failure, and may be away."""
_STATUS = {"completed": "ended", "backing-off": "waiting", "paused": "waiting"}


def open_runtime(driver: Driver | None, address: str = "", **options: Any) -> RestateRuntime:
    """The runtime at an address (default: ``http://127.0.0.1:8080``). Without a ``driver`` no run can be begun."""
    return RestateRuntime(driver, address or INGRESS, **options)


class RestateRuntime:
    """``Runtime`` on Restate. ``address`` is where its server takes calls, ``admin`` where it is administered.

    ``service`` is the name that the workers serve under, ``token`` is sent as a bearer token with each request.
    """

    def __init__(
        self, driver: Driver | None, address: str = INGRESS, *, admin: str = "", service: str = SERVICE, token: str = ""
    ) -> None:
        self._driver = driver
        self._address = checked_url(address, "Restate")
        self._admin = checked_url(admin or admin_of(self._address), "Restate's administration")
        self._service = checked_service(service)
        self._http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {token}"} if token else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def start(self, input: Input, *, run_id: str | None = None, thread: str | None = None) -> str:
        if self._driver is None:
            raise RunError("a run is begun under a policy: this runtime has no driver")
        order = ordered(self._driver, input, run_id=run_id, thread=thread)
        await self.begin(order)
        return order.spec.run

    async def begin(self, order: Order) -> None:
        """Begin the run of this order, once for its id."""
        run = order.spec.run
        answer = await self._send("POST", f"{self._run(run)}/run/send", encode(order))
        if answer.status_code == 404:
            raise RunError(f"no worker serves {self._service!r} at {self._address}: start one with `policy serve`")
        if answer.status_code >= 400:
            raise RunError(f"run {run}: Restate does not begin it: {_said(answer)}")

    async def result(self, run_id: str) -> RunResult:
        return (await self.end(run_id)).result

    async def end(self, run_id: str) -> End:
        """Wait for the end of a run. Raises as ``result``."""
        while True:
            try:
                answer = await self._send("GET", f"{self._workflow(run_id)}/attach")
            except _BrokenError:  # the server has gone while we waited: is it back?
                continue
            return self._ended(run_id, answer)

    async def peek(self, run_id: str) -> Report | None:
        answer = await self._send("GET", f"{self._workflow(run_id)}/output")
        if answer.status_code != _NOT_YET:
            self._ended(run_id, answer)
            return None
        shown = await self._shown(run_id)
        return shown[1] if shown else Report(run_id, "running", 0, Used())

    async def cancel(self, run_id: str, cause: str = "user") -> None:
        if await self._going(run_id):
            await self._signal(run_id, CANCEL, encode(Cancel(system_clock(), cause)))

    async def answer(
        self,
        request_id: str,
        granted: bool = True,
        *,
        args: Mapping[str, Any] | None = None,
        amount: int | None = None,
        result: Any = None,
        by: str = "",
    ) -> None:
        run = run_of(request_id)
        shown = await self._shown(run) if await self._going(run) else None
        request = next((each for each in shown[1].requests if each.id == request_id), None) if shown else None
        if shown is None or request is None:
            raise RunError(f"run {run} does not ask {request_id} (any more)")
        tools = self._driver.role.host.tools if self._driver is not None else None
        answer = answered(request, tools, granted, args, amount, result, by)
        await self._signal(run, answer_to(shown[0], request_id), encode(answer))

    async def runs(self) -> tuple[Listed, ...]:
        """All runs that the server knows, the last begun first."""
        sql = (
            "select target_service_key, status, created_at, completion_result, completion_failure, last_failure from "
            f"sys_invocation where target_service_name = '{self._service}' and target_handler_name = 'run' "
            "order by created_at desc"
        )
        query = json.dumps({"query": sql})
        answer = await self._request("POST", f"{self._admin}/query", query)
        for _ in range(_TRIES):
            if answer.status_code < 500:
                break
            await asyncio.sleep(_PAUSE_S)  # a server that has just been started does not know its tables yet
            answer = await self._request("POST", f"{self._admin}/query", query)
        if answer.status_code != 200:
            raise RuntimeUnreachableError(f"{self._admin} does not answer as Restate's administration does")
        return tuple(map(_listed, answer.json()["rows"]))

    async def aclose(self) -> None:
        await self._http.aclose()

    # Inside.

    def _run(self, run: str) -> str:
        return f"{self._address}/{self._service}/{quote(run, safe='')}"

    def _workflow(self, run: str) -> str:
        return f"{self._address}/restate/workflow/{self._service}/{quote(run, safe='')}"

    async def _going(self, run: str) -> bool:
        """Does it go on? Raises ``RunError`` for an unknown run."""
        answer = await self._send("GET", f"{self._workflow(run)}/output")
        if answer.status_code == 404:
            raise self._unknown(run)
        return answer.status_code == _NOT_YET

    async def _shown(self, run: str) -> tuple[int, Report] | None:
        """What a run shows of itself, and in which execution; ``None`` before it has shown anything."""
        try:
            answer = await self._send("POST", f"{self._run(run)}/peek", patience=_PATIENCE_S)
        except _NobodyError:
            raise RuntimeUnreachableError(
                f"run {run}: no worker has answered for {_PATIENCE_S} s; does one serve it at {self._address}?"
            ) from None
        if answer.status_code != 200:
            raise RunError(f"run {run}: {_said(answer)}")
        number, _, report = answer.text.partition(" ")
        return (int(number), decode(report, Report)) if report else None

    async def _signal(self, run: str, name: str, value: str) -> None:
        answer = await self._send("POST", f"{self._run(run)}/signal/send", f"{name}\n{value}")
        if answer.status_code >= 400:
            raise RunError(f"run {run}: {_said(answer)}")

    def _ended(self, run: str, answer: httpx.Response) -> End:
        if answer.status_code == 200:
            return decode(answer.content, ChildOver).end
        if answer.status_code == 404:
            raise self._unknown(run)
        raise RunError(_said(answer))

    def _unknown(self, run: str) -> RunError:
        return RunError(f"there is no run {run!r} at {self._address}")

    async def _send(
        self, method: str, url: str, body: str | None = None, *, patience: float | None = None
    ) -> httpx.Response:
        answer = await self._request(method, url, body, patience)
        if answer.status_code in (502, 503, 504):
            raise RuntimeUnreachableError(f"Restate at {self._address} is not ready: {_said(answer)}")
        return answer

    async def _request(self, method: str, url: str, body: str | None, patience: float | None = None) -> httpx.Response:
        headers = _JSON if body is not None else {}
        try:
            timeout = httpx.Timeout(_CONNECT_S, read=patience)
            return await self._http.request(method, url, content=body, headers=headers, timeout=timeout)
        except httpx.ReadTimeout:
            raise _NobodyError(f"nobody has answered for {patience} s") from None
        except (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError) as exc:
            raise _BrokenError(f"{url.partition('/restate/')[0]} has gone away: {exc!r}") from None
        except httpx.HTTPError as exc:
            where = self._admin if url.startswith(self._admin) else self._address
            said = str(exc) or type(exc).__name__
            raise RuntimeUnreachableError(f"there is no Restate at {where}: {said}") from None


class _NobodyError(RuntimeUnreachableError):
    """The server is there, and does not answer in time."""


class _BrokenError(RuntimeUnreachableError):
    """A connection that there was is gone."""


def _said(answer: httpx.Response) -> str:
    """What the server says is wrong."""
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text.strip() or f"status {answer.status_code}"


def _listed(row: Mapping[str, Any]) -> Listed:
    began = datetime.fromisoformat(str(row["created_at"]).replace("Z", "+00:00"))
    status: Any = _STATUS.get(row["status"], "running")
    why = row.get("last_failure") if status == "waiting" else None
    if row.get("completion_result") == "failure":
        status, why = "failed", row.get("completion_failure")
    return Listed(row["target_service_key"], status, round(began.timestamp() * 1000), why or "")
