"""FastAPI endpoints that run only while they hold a lock.

    from holdfast import aio
    from holdfast.integrations.fastapi import holding

    @asynccontextmanager
    async def lifespan(app):
        async with aio.connect("redis://cache:6379/3") as locks:
            yield {"locks": locks}

    app = FastAPI(lifespan=lifespan)

    @app.post("/reports/{month}")
    async def build(month: str, lease: Annotated[aio.Lease, holding("report:{month}")]):
        ...

A plain dependency with `yield` would give the lock back only after the answer was sent. A client
that calls again at once could then be told that its own last call still holds the lock, and a
lease that was lost could no longer turn the answer into an error. So this one ends with the
endpoint's function (FastAPI's `scope="function"`).
"""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast import aio
from holdfast.api.guard import Within
from holdfast.api.options import Seconds
from holdfast.errors import BadKey, BadOption, Busy, OutcomeUnknown, Unavailable, UsageError
from holdfast.extras import needed

with needed("holdfast.integrations.fastapi", "fastapi"):
    from fastapi import Depends, HTTPException
    from starlette.requests import HTTPConnection

STATE = "locks"  # where the application's lifespan puts its client

__all__ = ["holding"]


def holding(
    key: str | Callable[..., Any],
    *,
    busy: int = 409,
    retry_after: int = 1,
    timeout: Seconds | None = 0,
    locks: aio.Locks | None = None,
    **options: Any,
) -> Any:
    """Returns a dependency: the endpoint runs while it holds this lock, and gets the lease.

    The lock is released when the endpoint's function has returned, before the answer is sent. If
    the lease was lost by then, `LeaseLost` is raised instead of answering. `current_lease()` works.

    key          a template over the parameters in the path, in the form they have in the URL; or
                 a function that returns the key, which FastAPI calls like any dependency
    busy         the status of the answer if somebody else holds the lock: 409, 423 or 503
    retry_after  the seconds in the header `Retry-After`, of that answer and of the 503 that is
                 given while the store cannot be reached
    timeout      how long to wait for the lock; by default not at all; None: until it is free
    locks        the client, if it is not `locks` in the state that the lifespan yields
    options      others of `acquire`
    """
    if not 400 <= busy <= 599:
        raise BadOption(f"busy is the status of an error, 400 to 599, not {busy!r}.")
    inspect.signature(aio.Locks.acquire).bind(None, "", timeout=timeout, **options)
    name_of = _template(key) if isinstance(key, str) else key
    later = {"Retry-After": str(retry_after)}

    async def hold(
        connection: HTTPConnection, name: str = Depends(name_of)
    ) -> AsyncIterator[aio.Lease]:
        client = locks or _locks_of(connection)
        try:
            lease = await client.acquire(name, timeout=timeout, **options)
        except Busy as taken:  # whose message names the holder, which is not for everybody
            raise HTTPException(busy, "This is being worked on: try again later.", later) from taken
        except (Unavailable, OutcomeUnknown) as trouble:
            raise HTTPException(503, "The locks cannot be reached: try again later.", later) from (
                trouble
            )
        except BadKey as bad:
            raise HTTPException(422, str(bad)) from bad
        async with lease:
            with Within(lease):
                yield lease

    return Depends(hold, scope="function")


def _locks_of(connection: HTTPConnection) -> aio.Locks:
    locks = getattr(connection.state, STATE, None)
    if not isinstance(locks, aio.Locks):
        raise UsageError(
            f"holding() found no client: let the application's lifespan yield "
            f"{{{STATE!r}: locks}} with locks of holdfast.aio (in tests: `with TestClient(app)`), "
            f"or pass locks=."
        )
    return locks


def _template(template: str) -> Callable[[HTTPConnection], str]:
    def key(connection: HTTPConnection) -> str:
        try:
            return template.format_map(connection.path_params)
        except KeyError as unknown:
            raise UsageError(
                f"The key {template!r} names {unknown}, which is not in the path of this endpoint: "
                f"give holding() a function instead."
            ) from None

    return key
