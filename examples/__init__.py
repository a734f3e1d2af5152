"""Small programs that show one thing each. Run them from the repository's root."""
