"""Calls that wait for a lock, inside this process.

handles  which calls wait for which key, and how a store notifies them
poller   polling on their behalf, where the engine cannot notify
herd     keeps the processes that wait for one lock from coming all at once
"""
