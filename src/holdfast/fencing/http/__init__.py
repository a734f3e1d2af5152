"""Fences over HTTP, for services that sit in front of the data.

requests.post(url, headers=fencing.http.headers(lease), ...)

@contextmanager
def gate(fence):
    with engine.begin() as tx:
        fencing.sql.admit(tx, fence)
        yield tx

app = fencing.http.WSGIFencing(app, gate=gate)  # or ASGIFencing
"""

from holdfast.fencing.http.asgi import ASGIFencing
from holdfast.fencing.http.messages import (
    HEADER,
    current_fence,
    fence_in,
    headers,
    raise_if_stale,
    reply_to,
)
from holdfast.fencing.http.wsgi import WSGIFencing

__all__ = [
    "HEADER",
    "ASGIFencing",
    "WSGIFencing",
    "current_fence",
    "fence_in",
    "headers",
    "raise_if_stale",
    "reply_to",
]
