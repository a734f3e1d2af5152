"""`holdfast ui`: a live page of the locks."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from holdfast import __version__
from holdfast.cli.app import session_of
from holdfast.cli.params import DURATION, PREFIX, option, shared
from holdfast.cli.session import Session, tell
from holdfast.errors import BadOption, Misconfigured
from holdfast.extras import needed

SHORTEST_INTERVAL_S = 0.1


class UiRequest(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    prefix: str
    host: str
    port: int
    name: tuple[str, ...]
    interval: float
    history: str | None
    keep: float
    allow_evict: bool
    token: str | None
    label: tuple[str, ...]

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def hosts(self, port: int) -> list[str]:
        """The Host headers that name this server."""
        names = [*self.name, self.host]
        if self.loopback:
            names += ["localhost", "127.0.0.1", "::1"]
        names = [f"[{name}]" if ":" in name else name.lower() for name in names]
        return [text for name in names for text in (f"{name}:{port}", *([name] * (port == 80)))]


@click.command()
@click.argument("prefix", type=PREFIX, default="")
@option("--host", default="127.0.0.1", help="The address to serve on.")
@option(
    "--port", type=click.IntRange(0, 65535), default=8420, help="The port; 0 chooses a free one."
)
@option("--name", multiple=True, help="Another host name under which browsers reach this server.")
@option("-i", "--interval", type=DURATION, default="500ms", help="How often to read the store.")
@option("--history", metavar="FILE", help="Keep the history in this SQLite file.")
@option("--keep", type=DURATION, default="7d", help="How long to keep the history.")
@option("--allow-evict", is_flag=True, help="Let people with the token evict holders.")
@option("--token", help="The token, if one is needed.  [default: a new one, which is printed]")
@option("--label", multiple=True, help="A prefix of keys that becomes a label of the metrics.")
@shared
@click.pass_context
def ui(ctx: click.Context, /, **options: Any) -> None:
    """Serve a live page of the locks whose keys start with PREFIX, until Ctrl-C.

    By default only this machine can reach the page, and it can only be read. To evict holders, or
    to serve on another address, people need the token.
    """
    request = UiRequest(**options)
    session = session_of(ctx)
    with needed("The page", "ui"):
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    if not request.loopback and request.host in ("0.0.0.0", "::") and not request.name:
        raise BadOption("Name the host under which browsers reach this server: --name HOST.")
    asyncio.run(_serve(session, request))


async def _serve(session: Session, request: UiRequest) -> None:
    import uvicorn

    from holdfast import aio
    from holdfast.ui.app import application
    from holdfast.ui.history import History
    from holdfast.ui.observer import Observer

    metrics = _metrics(request)
    listening = _listen(request)
    port = listening.getsockname()[1]
    token = request.token or secrets.token_urlsafe(24)
    needs_token = request.allow_evict or not request.loopback
    try:
        history = History(Path(request.history) if request.history else None, request.keep)
    except Exception as exc:
        raise Misconfigured(f"The history cannot be kept in {request.history}: {exc}.") from exc
    async with aio.connect(session.place, sinks=[metrics.sink] if metrics else []) as locks:
        interval = max(request.interval, SHORTEST_INTERVAL_S)
        observer = Observer(locks, history, request.prefix, interval)
        if metrics is not None:
            metrics.watch(lambda: list(observer.seen.values()))
        app = application(
            observer,
            history,
            about={
                "version": __version__,
                "store": session.shown_url,
                "prefix": request.prefix,
                "interval": interval,
                "evict": request.allow_evict,
                "history": bool(request.history),
            },
            hosts=request.hosts(port),
            token=token if needs_token else None,
            token_to_read=not request.loopback,
            evict=request.allow_evict,
            metrics=metrics,
        )
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=1,
            server_header=False,
        )  # fmt: skip
        name = request.name[0] if request.name else request.host
        shown = f"[{name}]" if ":" in name else name
        tell(f"the page is at http://{shown}:{port}/{f'#token={token}' if needs_token else ''}")
        try:
            await uvicorn.Server(config).serve(sockets=[listening])
        finally:
            history.close()
            listening.close()


def _listen(request: UiRequest) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in request.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((request.host, request.port))
    except OSError as exc:
        listening.close()
        raise Misconfigured(
            f"The page cannot be served on {request.host}:{request.port} ({exc.strerror}): choose "
            f"another --port."
        ) from exc
    return listening


def _metrics(request: UiRequest) -> Any:
    try:
        from holdfast.ui.metrics import PageMetrics
    except ImportError:
        return None
    return PageMetrics(request.label)
