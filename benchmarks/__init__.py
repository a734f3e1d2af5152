"""Us and the others, side by side in one run: `make bench`, or `python -m benchmarks`.

sites.py      the engines, each started for its turn
peers/        who takes part: one small class per library and store
workloads/    what is measured: one module per question
harness.py    rounds in turns, so that a noisy machine hits all alike
crew.py       processes for the workloads that need several
targets.py    what we want of the figures
report.py     the page and the tables; picture.py the picture at its top, plots.py the others
distance.py   a network between a client and an engine
history.py    stored runs, and what has become worse since the last release (released.json)
"""
