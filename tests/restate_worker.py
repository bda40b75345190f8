"""A worker on Restate for a world, as a process: ``NAME URL ADDRESS ADMIN LISTEN [FLAG...]``.

Flags: ``other`` (it has another policy), ``shifted`` (it counts steps otherwise), ``newer`` (its core has other
semantics), ``replace``, ``most=N``, ``idle=MS``.
"""

import asyncio
import sys

from engine_worlds import driver_of, shift_steps

from engine.runtimes.restate.serving import serve


def other_semantics():
    from engine.runtimes import execution

    execution.SEMANTICS_VERSION += 1


async def main(name, url, address, admin, listen, *flags):
    if "shifted" in flags:
        shift_steps()
    if "newer" in flags:
        other_semantics()
    numbers = {key: int(value) for key, _, value in (flag.partition("=") for flag in flags) if value}
    ready = asyncio.Event()
    driver = driver_of(name, url, other="other" in flags)
    serving = asyncio.ensure_future(
        serve(
            driver,
            address,
            admin=admin,
            listen=listen,
            replace="replace" in flags,
            **numbers,
            ready=ready,
        )
    )
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if ready.is_set():
        print("ready", flush=True)
    await serving


asyncio.run(main(*sys.argv[1:]))
