"""Sinks for events: the log, and others in modules of their own, loaded when used."""
