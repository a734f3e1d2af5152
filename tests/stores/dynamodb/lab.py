"""Tables to work with, requests that are counted, and a service that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from holdfast.stores.dynamodb import DynamoDBStore
from holdfast.stores.registry import open_store
from tests.engines.dynamodb import session

Answer = tuple[int, str, str]  # status, code and message; status 0 hangs up
DATE = "Sun, 15 Nov 2026 22:00:00 GMT"


class Lab:
    """One server, and stores that are closed when the test ends."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._opened: list[DynamoDBStore] = []

    def new_table(self) -> str:
        """A name that no table has."""
        return f"T{uuid4().hex[:12]}"

    def open(self, table: str, place: Any = None, **options: Any) -> DynamoDBStore:
        """A store on this table, through a session unless told otherwise."""
        if place is None:
            place = session()
            options = {"endpoint_url": self.endpoint, "clock_margin_s": 0, **options}
        store = open_store(place, table=table, **options)
        assert isinstance(store, DynamoDBStore)
        self._opened.append(store)
        return store

    def store(self, **options: Any) -> DynamoDBStore:
        """A store on a new table."""
        store = self.open(self.new_table(), **options)
        store.setup()
        return store

    def url(self, table: str, port: int | None = None, **options: Any) -> str:
        """The address of a table; the credentials are in the environment."""
        endpoint = self.endpoint if port is None else f"http://127.0.0.1:{port}"
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"dynamodb://{table}?region=eu-west-1&endpoint_url={endpoint}{more}"

    def close(self) -> None:
        """Close the stores of this test."""
        for store in self._opened:
            store.close()


def item(store: DynamoDBStore, key: str) -> dict[str, Any]:
    """What is stored under a key, as DynamoDB shows it."""
    asked = {"Key": store.protocol.codec.key(key), "ConsistentRead": True}
    found: dict[str, Any] = store.transport.call("get_item", "reading", **asked).get("Item", {})
    return found


def count_requests(client: Any) -> list[str]:
    """A list that grows with the name of every request that leaves."""
    seen: list[str] = []

    def note(request: Any, event_name: str, **_: Any) -> None:
        seen.append(event_name.rpartition(".")[2])

    client.meta.events.register("before-send.dynamodb.*", note)
    return seen


class _Told(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        operation = self.headers["x-amz-target"].rpartition(".")[2]
        self.server.seen.append(operation)
        status, code, message = self.server.answers.pop(0)
        if status == 0:
            self.close_connection = True
            return
        body = json.dumps({"__type": f"com.amazonaws.dynamodb#{code}", "message": message})
        if status == 200 or not code:
            body = message
        self.send_response_only(status)
        self.send_header("Date", DATE)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        if status == 200 or code:
            self.send_header("Content-Length", str(len(body)))
        else:  # a page of a proxy's, until it hangs up
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: Any) -> None:
        pass


class LastHeard(ThreadingHTTPServer):
    """What no local server can be made to do: throttle, fail, let credentials expire."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Told)
        self.answers: list[Answer] = []
        self.seen: list[str] = []

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def told(*answers: Answer) -> Iterator[LastHeard]:
    """A service that gives these answers, one after the other."""
    with LastHeard() as service:
        service.answers = list(answers)
        thread = threading.Thread(target=service.serve_forever, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()
