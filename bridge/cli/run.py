"""From a command's coroutine to its end: the event loop, the connection to a bridge, the sentence for an error."""
# ruff: noqa: PLC0415 - the imports: see bridge/cli/__init__.py

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli.output import Failure
from bridge.errors import BridgeError, CannotStart

if TYPE_CHECKING:
    from bridge.client import Client

T = TypeVar("T")


def looped(work: Coroutine[Any, Any, T], *, as_json: bool) -> T:
    """Run the work; what it raises on purpose becomes one sentence, a defect stays a traceback."""
    try:
        if find_spec("uvloop") is not None:
            import uvloop

            return uvloop.run(work)
        return asyncio.run(work)
    except Exception as error:
        from bridge.settings import SettingsError

        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        # OSError: an address in use; RuntimeError: a server that is not installed; a broken pipe is click's to handle
        known = (SettingsError, CannotStart, BridgeError, OSError, RuntimeError)
        if isinstance(first, known) and not isinstance(first, BrokenPipeError):
            raise Failure(first, as_json=as_json) from None
        raise


def talk(url: str, ca: str | None, work: "Callable[[Client], Coroutine[Any, Any, T]]", *, as_json: bool) -> T:
    """Connect to the bridge at `url` and run the work with it."""
    import ssl

    from bridge.client import Client

    try:
        client = Client(url, verify=ssl.create_default_context(cafile=ca) if ca else True)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    except ssl.SSLError:
        raise click.BadParameter("this is not a PEM file with a certificate", param_hint="--ca") from None

    async def talking() -> T:
        async with client:
            return await work(client)

    return looped(talking(), as_json=as_json)
