"""The command line, run as a program of its own."""
