"""A worker for runs on Restate: an HTTP server that Restate calls, registered there."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import restate
from hypercorn.asyncio import serve as serve_app
from hypercorn.config import Config
from restate.server import install_shutdown_hook

from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.runtimes.execution import Worker
from engine.runtimes.protocol import RuntimeUnreachableError
from engine.runtimes.restate.addresses import INGRESS, LISTEN, SERVICE, admin_of, checked_service, checked_url
from engine.runtimes.restate.services import Settings, services

_log = logging.getLogger("policy.restate")
_http_log = logging.getLogger("policy.restate.http")
_http_log.setLevel(logging.ERROR)  # it would complain that there is nothing to be done when it starts


async def serve(
    driver: Driver,
    address: str = "",
    *,
    admin: str = "",
    listen: str = LISTEN,
    url: str = "",
    token: str = "",
    replace: bool = False,
    service: str = SERVICE,
    most: int = 1000,
    idle: int = 3_600_000,
    kept: int = 7 * 86_400_000,
    more: Sequence[restate.Service | restate.VirtualObject | restate.Workflow] = (),
    ready: asyncio.Event | None = None,
) -> None:
    """Carry runs of this driver's policy out until cancelled, or until a polite kill (SIGTERM).

    ``listen`` (``HOST:PORT``) is where this process is called, ``url`` under which address the server does that
    (default: the same). ``replace``: this worker takes the place of an older one at its address, with its runs.
    ``service`` is the name under which clients know the runs of this policy. See ``Settings`` for ``most``, ``idle``,
    ``kept``. ``more`` are services of your own, at the same address. ``ready`` is set once the worker is registered.

    Several workers side by side have addresses of their own: new runs go to the one registered last, older ones end
    where they began.

    Raises:
        RuntimeUnreachableError: there is no Restate there, or it cannot call this process.
        RunError: an address is none, or cannot be listened at.
    """
    host, port = _bound(listen)
    checked_service(service)
    admin = checked_url(admin or admin_of(checked_url(address or INGRESS, "Restate")), "Restate's administration")
    here = checked_url(url or f"http://{f'[{host}]' if ':' in host else host}:{port}", "this worker")
    stop = asyncio.Event()
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        install_shutdown_hook(asyncio.get_running_loop(), stop.set)
    ours = services(Worker(driver), Settings(service, most, idle, kept))
    app = restate.app([*ours, *more], protocol="bidi")
    listening = _listening(host, port, listen)
    serving = asyncio.ensure_future(serve_app(app, _config(listening), shutdown_trigger=stop.wait))
    try:
        await _registered(admin, here, token, replace)
        if ready is not None:
            ready.set()
        _log.info("serving at %s for %s", here, admin)
        await serving
    finally:
        stop.set()
        with suppress(asyncio.CancelledError, Exception):
            await asyncio.wait_for(serving, 5)


def _config(listening: socket.socket) -> Config:
    config = Config()
    config.bind = [f"fd://{listening.detach()}"]  # it is closed there
    config.graceful_timeout = 1.0
    config.keep_alive_timeout = 3600.0
    config.accesslog = None
    config.errorlog = _http_log
    config.h2_max_concurrent_streams = 100_000
    return config


def _bound(listen: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{listen}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise RunError(f"{listen!r} is no place to listen at: it looks like {LISTEN}")
    return host, port


def _listening(host: str, port: int, listen: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as exc:
        raise RunError(f"cannot listen at {listen}: {os.strerror(exc.errno).lower() if exc.errno else exc}") from None


async def _registered(admin: str, here: str, token: str, replace: bool) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        async with httpx.AsyncClient(timeout=30, headers=headers) as http:
            answer = await http.post(f"{admin}/deployments", json={"uri": here, "force": replace})
    except httpx.HTTPError as exc:
        raise RuntimeUnreachableError(f"there is no Restate at {admin}: {exc or type(exc).__name__}") from None
    if answer.status_code == 409:
        raise RunError(
            f"another worker was registered at {here} before: listen at another address, so that its runs end under "
            "it, or take its place with --replace"
        )
    if answer.status_code >= 400:
        raise RuntimeUnreachableError(f"Restate at {admin} does not take the worker at {here}: {answer.text[:500]}")
