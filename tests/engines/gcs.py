"""What our store asks of Google Cloud Storage, played by a few lines of our own.

No emulator that can be had by a package's name honours generation preconditions. This one
does, and nothing else: it shows that we ask for them and understand the answers, not how
Google's service behaves. `python -m tests.engines.gcs PORT exact` serves it.
"""

from __future__ import annotations

import json
import sys
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.engines.base import Engine, listens

BUCKET = "locks"
PAGE = 20
META = "x-goog-meta-"


class FakeGCS(Engine):
    """A server with one bucket."""

    how = "exact"

    @classmethod
    def installed(cls) -> bool:
        return True

    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "tests.engines.gcs", str(self.port), self.how]

    def environment(self) -> dict[str, str]:
        repository = Path(__file__).parent.parent.parent
        return {**super().environment(), "PYTHONPATH": str(repository)}

    def answers(self) -> bool:
        return listens(self.port)

    @property
    def service_account_key(self) -> str:
        """Where it is, in the form in which obstore wants to be told."""
        nobody = {"client_email": "", "private_key": "", "private_key_id": ""}
        place = {"gcs_base_url": f"http://127.0.0.1:{self.port}", "disable_oauth": True}
        return json.dumps({**place, **nobody})


class CarelessGCS(FakeGCS):
    """One that writes whatever the preconditions say, as some servers do."""

    how = "careless"


class UndatedGCS(FakeGCS):
    """One that does not tell when an object was written."""

    how = "undated"


class _Objects:
    """Name -> body, generation, when it was written, and its metadata."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.rows: dict[str, tuple[bytes, int, float, dict[str, str]]] = {}
        self.generation = time.time_ns() // 1000
        self.how = "exact"

    def put(self, name: str, body: bytes, only: str | None, meta: dict[str, str]) -> int | None:
        """The new generation, if the precondition is met; 0 stands for no object."""
        with self.lock:
            there = self.rows.get(name)
            met = only is None or int(only) == (0 if there is None else there[1])
            if not met and self.how != "careless":
                return None
            self.generation += 1
            self.rows[name] = body, self.generation, time.time(), meta
            return self.generation

    def page(self, prefix: str, after: str) -> tuple[list[str], bool]:
        """The first names, and whether there are more."""
        names = sorted(n for n in list(self.rows) if n.startswith(prefix) and n > after)
        return names[:PAGE], len(names) > PAGE


OBJECTS = _Objects()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        only = self.headers.get("x-goog-if-generation-match")
        meta = {name: text for name, text in self.headers.items() if name.startswith(META)}
        generation = OBJECTS.put(self._name(), body, only, meta)
        if generation is None:
            self._error(412, "PreconditionFailed")
        else:
            self._reply(200, b"", self._about(generation, time.time()))

    def do_GET(self) -> None:
        if self._bucket() != BUCKET:
            self._error(404, "NoSuchBucket")
        elif not self._name():
            self._list()
        elif self._name() not in OBJECTS.rows:
            self._error(404, "NoSuchKey")
        else:
            body, generation, written, meta = OBJECTS.rows[self._name()]
            self._reply(200, body, {**self._about(generation, written), **meta})

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        there = OBJECTS.rows.pop(self._name(), None)
        self._reply(204, b"", {}) if there else self._error(404, "NoSuchKey")

    def _bucket(self) -> str:
        return urlsplit(self.path).path.split("/")[1]

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path.split("/", 2)[2:][0]) if self._deep() else ""

    def _deep(self) -> bool:
        return urlsplit(self.path).path.count("/") > 1

    def _list(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        after = asked.get("continuation-token", asked.get("start-after", [""]))[0]
        names, more = OBJECTS.page(asked.get("prefix", [""])[0], after)
        contents = "".join(map(_listed, names))
        rest = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if more else ""
        xml = f"<ListBucketResult>{contents}{rest}</ListBucketResult>"
        self._reply(200, xml.encode(), {"Content-Type": "application/xml"})

    def _about(self, generation: int, written: float) -> dict[str, str]:
        about = {"ETag": f'"{generation:x}"', "x-goog-generation": str(generation)}
        if OBJECTS.how != "undated":
            about["Last-Modified"] = formatdate(int(written), usegmt=True)
        return about

    def _error(self, status: int, code: str) -> None:
        self._reply(status, f"<Error><Code>{code}</Code></Error>".encode(), {})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Nothing."""


def _listed(name: str) -> str:
    body, generation, written, _ = OBJECTS.rows[name]
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written))
    return (
        f"<Contents><Key>{escape(name)}</Key><LastModified>{at}</LastModified>"
        f"<Size>{len(body)}</Size><ETag>{generation:x}</ETag></Contents>"
    )


if __name__ == "__main__":
    OBJECTS.how = sys.argv[2]
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
