"""The objects that `ResourceLocker` returns: plain data with the fields of the original."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


class Unlocker(Protocol):
    """An object that can release a lock."""

    def unlock(self, lock: Any) -> None: ...


class LockException(Exception):
    """The resource cannot be locked."""


class _Row:
    """Shown as the original shows its rows."""

    def __repr__(self) -> str:
        shown = (f"{name}={_quoted(value)}" for name, value in self.to_dict().items())
        return f"<{type(self).__name__}({', '.join(shown)})>"

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as plain data."""
        return dict(vars(self))


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


@dataclass(frozen=True, repr=False)
class Client(_Row):
    """A process, an application or a person that needs access to a resource."""

    client_id: int
    name: str


@dataclass(frozen=True, repr=False)
class Resource(_Row):
    """Something that can be locked, such as a database or a file."""

    resource_id: int
    uri: str


@dataclass(frozen=True)
class ResourceLock:
    """A lock that a client has on a resource. In a `with` block it is unlocked at the end."""

    resource_lock_id: int
    lock_type: str
    created: datetime
    client: Client
    resource: Resource
    _locker: Unlocker | None = field(default=None, compare=False)

    @property
    def client_id(self) -> int:
        """The ID of the lock's client."""
        return self.client.client_id

    @property
    def resource_id(self) -> int:
        """The ID of the lock's resource."""
        return self.resource.resource_id

    def __repr__(self) -> str:
        return (
            f"<ResourceLock(resource_lock_id={self.resource_lock_id}, "
            f"lock_type='{self.lock_type}', client='{self.client.name}', "
            f"resource='{self.resource.uri}')>"
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "resource_lock_id": self.resource_lock_id,
            "client": self.client.to_dict(),
            "resource": self.resource.to_dict(),
            "lock_type": self.lock_type,
            "created": self.created,
        }

    def __enter__(self) -> ResourceLock:
        return self

    def __exit__(self, exc_type: Any, exc: Any, trace: Any) -> None:
        assert self._locker is not None
        try:
            self._locker.unlock(self)
        except ValueError:
            if exc_type is None:
                raise LockException(f"{self!r} was gone before its block ended") from None
