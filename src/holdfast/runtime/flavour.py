"""Which of two twins a module is.

Modules named `*_async.py` are written by hand; tools/async_to_sync.py makes the blocking ones of
them. What differs between the two stands in `if ASYNC: ... else: ...` or `if not ASYNC: ...`,
and only the right branch is left in the blocking one.
"""

from typing import Final

ASYNC: Final = True
