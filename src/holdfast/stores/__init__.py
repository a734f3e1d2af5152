"""Engines that can swap a record atomically. Each one is opened by its URL's scheme."""
