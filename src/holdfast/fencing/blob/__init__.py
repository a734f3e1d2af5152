"""Objects of S3, Azure, Google Cloud or a directory that a stale holder cannot replace.

fencing.blob.put(store, "report.csv", data, lease)  # a store of obstore's
"""

from holdfast.extras import needed

with needed("holdfast.fencing.blob", "blob"):
    from holdfast.fencing.blob.objects import delete, get, put

__all__ = ["delete", "get", "put"]
