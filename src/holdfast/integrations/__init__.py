"""Holdfast inside other people's frameworks. Each integration has an extra of its name."""
