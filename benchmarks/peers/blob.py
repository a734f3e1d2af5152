"""Azure's blobs, by its emulator Azurite. There is no peer that speaks to it: see mops."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.floors import RECORD, Floor
from benchmarks.sites import Place


class BareBlob(Floor):
    """obstore, with a condition on the ETag."""

    stores = ("az",)
    name = "bare PUT, PUT"
    package = "obstore"

    def __init__(self, place: Place) -> None:
        engine = import_module("tests.engines.azurite")
        obstore = import_module("obstore")
        self._put = obstore.put
        self._store = obstore.store.AzureStore(
            "locks",
            account_name=engine.ACCOUNT,
            account_key=engine.ACCOUNT_KEY,
            endpoint=f"http://127.0.0.1:{place.port}/{engine.ACCOUNT}",
            client_options={"allow_http": True},
        )
        self._tag = self._put(self._store, "bare", RECORD.encode())["e_tag"]

    def take(self) -> None:
        mode = {"e_tag": self._tag}
        self._tag = self._put(self._store, "bare", RECORD.encode(), mode=mode)["e_tag"]

    free = take
