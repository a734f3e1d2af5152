"""Real servers for the tests, each on a free loopback port with its data in a temp folder.

One module per engine; each has a subclass of `Engine`. `python -m tests.engines` installs
what is missing (as root, by package name).
"""
