"""A bucket in obstore's terms: which call carries a request out, and what its result means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError
from obstore.store import LocalStore

from holdfast.core.contract import Version
from holdfast.stores.blob import requests as ask
from holdfast.stores.blob.errors import from_obstore, no_bucket, time_in, trouble
from holdfast.stores.blob.names import SUFFIX, before

# Google caches what everybody may read, for an hour, unless told not to.
_ATTRIBUTES = {"Content-Type": "application/json", "Cache-Control": "no-store"}


class Bucket:
    """One store of obstore's, and where in it our objects are.

    `name` names it in messages, without secrets. `by_generation`: versions are the generations of
    Google Cloud, and not ETags. `in_order`: listings come in the order of the names.
    """

    def __init__(
        self, store: Any, prefix: str, name: str, *, by_generation: bool, in_order: bool = True
    ) -> None:
        self.store = store
        self.name = name
        self._prefix = prefix or None
        self._folder = f"{prefix}/" if prefix else ""
        self._by_generation = by_generation
        self._in_order = in_order

    def path(self, name: str) -> str:
        """Returns the path of an object of ours."""
        return self._folder + name

    # --- requests and answers ---------------------------------------------------------------

    def get_options(self, request: ask.Get) -> Any:
        """Returns the options of a `get`. A generation is not an ETag, so it cannot be compared."""
        known = None if self._by_generation else request.unless
        return {"if_none_match": known} if known else None

    def put_options(self, request: ask.Put) -> dict[str, Any]:
        """Returns the keyword arguments of a `put`."""
        options: dict[str, Any] = {"mode": self._mode(request), "use_multipart": False}
        if not isinstance(self.store, LocalStore):
            options["attributes"] = _ATTRIBUTES
        return options

    def _mode(self, request: ask.Put) -> Any:
        if request.anyway:
            return "overwrite"
        if request.only is None:
            return "create"
        return {"version" if self._by_generation else "e_tag": request.only}

    def version_in(self, meta: Any) -> Version:
        """Returns the version that obstore tells of an object."""
        return meta["version"] if self._by_generation else meta["e_tag"]

    def found(self, meta: Any, body: bytes) -> ask.Found:
        """Returns the answer to a request that has found an object."""
        return ask.Found(body, self.version_in(meta), meta["last_modified"])

    def answer_to(self, request: ask.Request, exc: Exception) -> ask.Answer:
        """Returns the answer that an exception of obstore's stands for; raises if it is none."""
        if not from_obstore(exc):
            raise exc
        if not no_bucket(exc):
            if isinstance(exc, NotModifiedError):
                return ask.Unchanged()
            if isinstance(exc, (AlreadyExistsError, PreconditionError)):
                return ask.Unmet()
            if isinstance(exc, FileNotFoundError) and _may_be_missing(request):
                # Some services say so when a conditional write finds no object.
                return ask.Unmet() if isinstance(request, ask.Put) else ask.Missing(time_in(exc))
        writing = isinstance(request, (ask.Put, ask.Delete))
        raise trouble(exc, self.name, writing=writing) from exc

    # --- listings ---------------------------------------------------------------------------

    def listing(self, request: ask.Names) -> Any:
        """Returns obstore's stream of what may be in a page."""
        after = request.after or before(request.start)
        offset = self._folder + after if after else None
        size = min(request.limit + 1, 1000)
        return obstore.list(self.store, self._prefix, offset=offset, chunk_size=size)

    def collect(self, request: ask.Names, chunk: Iterable[Any], names: list[str]) -> bool:
        """Add the names of ours in a part of a listing. Returns False when the page is full."""
        for meta in chunk:
            name = meta["path"].removeprefix(self._folder)
            if name.startswith(request.start):
                if "/" not in name and name.endswith(SUFFIX) and name > (request.after or ""):
                    names.append(name)
            elif self._in_order and name > request.start:
                return False
        return not self._in_order or len(names) < request.limit


def _may_be_missing(request: ask.Request) -> bool:
    """Whether "not found" is about the object. Otherwise the bucket, or the service, is not at
    the address."""
    if isinstance(request, ask.Put):
        return request.only is not None
    return not isinstance(request, ask.Names)
