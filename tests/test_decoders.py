"""Decoders are made when their module is imported: msgspec is not safe for threads at that."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent

FIRST_USE = """
import sys, threading
sys.setswitchinterval(1e-6)
from holdfast.core import records
holder = records.Holder("t", 7, "o", "exclusive", 1, 1, 2, "b")
raw = records.encode(records.Record(7, (holder,)))
together = threading.Barrier(8)
def read():
    together.wait(60)
    for _ in range(50):
        records.decode(raw)
threads = [threading.Thread(target=read) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join(60)
"""


def test_no_decoder_is_made_at_first_use() -> None:
    """Inside of functions nothing is decoded by a type, and no decoder is made."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [
                    f"{path.relative_to(SOURCE)}:{call.lineno}"
                    for call in ast.walk(function)
                    if isinstance(call, ast.Call) and _makes_a_decoder(call)
                ]
    assert found == []


def _makes_a_decoder(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    typed = any(keyword.arg == "type" for keyword in call.keywords)
    return name.endswith("Decoder") or (name.endswith("json.decode") and typed)


def test_the_first_record_may_be_read_by_many_threads_at_once() -> None:
    """No thread uses a decoder that another one has not finished (before: a segmentation fault)."""
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", FIRST_USE], timeout=100, capture_output=True)
        assert ran.returncode == 0, ran.stderr.decode()
