"""Holders that are stopped between their check and their write, for longer than their ttl.

A process takes locks, checks each lease, and stops itself (SIGSTOP). The ttl runs out, and a
second holder takes the locks and writes. Then the first one goes on (SIGCONT), and makes its
writes. With a gate none of them may land after the second holder's; without one they do, or the
test could not fail.

    python -m tests.stale_writers [--tries 50] [TARGET ...]
    python -m tests.stale_writers --busy      a holder that writes all the time, stopped anywhere
"""
