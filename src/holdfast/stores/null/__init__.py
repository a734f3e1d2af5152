"""No locks at all, for development without a lock store."""

from holdfast.stores.null.store import LocksDisabled, NullStore

__all__ = ["LocksDisabled", "NullStore"]
