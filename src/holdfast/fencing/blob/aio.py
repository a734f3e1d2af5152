"""The same, awaited."""

from holdfast.fencing.blob.objects_async import delete, get, put

__all__ = ["delete", "get", "put"]
