"""A forked process that works step by step with its parent, for tests of forks."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any


class Child:
    """A forked process that runs a function, step by step with its parent."""

    def __init__(self, work: Callable[[Child], Any]) -> None:
        self._from_child, to_parent = os.pipe()
        from_parent, self._to_child = os.pipe()
        faulthandler.cancel_dump_traceback_later()  # its thread would be missing in the child
        self.pid = os.fork()
        if self.pid == 0:
            self._from_child, self._to_child = from_parent, to_parent
            self._run(work)
        os.close(to_parent)
        os.close(from_parent)

    def _run(self, work: Callable[[Child], Any]) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # whatever happens, the child ends
        signal.alarm(20)
        faulthandler.dump_traceback_later(15)  # and says where it was
        try:
            answer = {"answer": work(self)}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        os.write(self._to_child, json.dumps(answer).encode() + b"\n")
        os._exit(0)

    def tell(self) -> None:
        """Let the other side go on."""
        os.write(self._to_child, b"\n")

    def listen(self) -> None:
        """Wait for the other side."""
        assert os.read(self._from_child, 1) == b"\n"

    def answer(self) -> Any:
        """What the function returned."""
        with os.fdopen(self._from_child) as pipe:
            text = pipe.read()
        os.close(self._to_child)
        assert os.waitpid(self.pid, 0)[1] == 0, "the child hung"
        said = json.loads(text)
        assert "error" not in said, said["error"]
        return said["answer"]


def raised(call: Callable[[], Any]) -> str:
    """The class and the message of what a call raises."""
    try:
        call()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return "nothing"
