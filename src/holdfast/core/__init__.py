"""The law of the lock: records, rules, steps and the keeper's schedule.

Nothing in here does I/O, reads a clock, draws a random number, starts a thread or
imports asyncio. A test checks it.
"""
