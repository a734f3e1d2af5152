"""Files on a disk of this machine that a stale holder cannot replace.

fencing.files.write("report.csv", data, lease)
"""

from holdfast.fencing.files.writing import remove, replace, write

__all__ = ["remove", "replace", "write"]
