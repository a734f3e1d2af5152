"""How long calls take while a server stands still.

`python -m tests.frozen` starts each engine, has a program use it, stops the engine with SIGSTOP,
and measures every call of the program, in both faces. `caller.py` is that program, `sites.py` knows
how to freeze each engine, `measure.py` puts them together.
"""
