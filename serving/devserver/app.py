"""Opens the ports, loads the model, serves until a signal, and ends in order."""

import asyncio
import os
import signal
import threading

from . import grpc_api, rest_api
from .address import with_default_port
from .errors import log
from .versions import Versions


async def serve(options, clean_up):
    """Serves until SIGTERM or SIGINT; returns 0 after a signal, 1 if it could not start.

    A second signal a second later ends the process at once, and so does the end of the seconds of
    grace, whatever still runs or waits. (A wrapper may send a signal twice.) Before that it calls
    `clean_up`.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def leave():
        clean_up()
        os._exit(0)

    def end():
        if not stop.is_set():
            stop.set()
            end.patience = loop.time() + 1
            # aiohttp would wait for the seconds of grace twice.
            last = threading.Timer(options.grace_seconds + 1, leave)
            last.daemon = True
            last.start()
        elif loop.time() > end.patience:
            leave()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    versions = Versions(options)
    try:
        rpc, health, port = await grpc_api.start(versions, options)
        http = await rest_api.start(versions, options)
    except (OSError, OverflowError, RuntimeError) as error:
        log.error("Cannot listen on %s: %s", options.host, error)
        return 1
    rpc_at, rest_at = (with_default_port(options.host, n) for n in (port, http.addresses[0][1]))
    rest = f"http://{rest_at}/v1/models/{versions.name}"
    print(f"gRPC on {rpc_at}, REST on {rest}", flush=True)
    serving = asyncio.create_task(load_and_watch(versions, health))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    failed = serving.done() and serving.exception()
    if failed:
        log.error("The server did not start. %s", failed)
    serving.cancel()
    await grpc_api.set_serving(health, False)
    await asyncio.gather(rpc.stop(options.grace_seconds), http.cleanup())
    versions.close()
    return 1 if failed else 0


async def load_and_watch(versions, health):
    """Loads the first version, or raises a `StatusError`; then looks for others for ever."""
    await versions.load_newest()
    await grpc_api.set_serving(health, True)
    await versions.watch()
