"""Says which of two twins a module is.

Modules named `*_async.py` are written by hand; tools/async_to_sync.py makes a blocking twin of
each. Code that differs between the two stands in `if ASYNC: ... else: ...` or `if not ASYNC: ...`;
the blocking twin contains only the branch that applies to it.
"""

from typing import Final

ASYNC: Final = True
