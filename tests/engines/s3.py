"""An S3 service, played by moto."""

from __future__ import annotations

import http.client

from tests.engines.moto import Moto


class S3Server(Moto):
    """Takes any credentials, and has no bucket until one is made."""

    start_within_s = 100.0

    def create_bucket(self, name: str) -> None:
        """Make a bucket; it may be there already."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("PUT", f"/{name}", headers={"Content-Length": "0"})
        status = connection.getresponse().status
        connection.close()
        assert status in (200, 409), f"the bucket {name} was not made: {status}"
