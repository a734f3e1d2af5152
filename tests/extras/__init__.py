"""What each extra brings, and what is said where it is missing."""
