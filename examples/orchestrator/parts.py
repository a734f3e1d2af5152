"""The work: two parts, each slow enough to outlive the one who started it."""

from __future__ import annotations

import os

PARTS = {"even": range(0, 20, 2), "odd": range(1, 21, 2)}
PAUSE_S = float(os.environ.get("PAUSE_S", "0.8"))  # for each number
TTL_S = float(os.environ.get("TTL_S", "3"))  # shorter than a part takes
