"""Holdfast in Django projects."""
