"""Where events go: the log here; other sinks are modules of their own, loaded when used."""
