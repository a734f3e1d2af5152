#!/bin/sh
# A remote worker in another language. It knows nothing of locks: `holdfast run` has joined
# the lease before it is started, keeps it alive, and stops it if it is lost.
#
# HOLDFAST_RUN_JOIN=ticket holdfast run -- sh worker.sh PART PAUSE NUMBER...
set -eu
part=$1 pause=$2
shift 2
echo "began $part" >> "$RESULTS/journal"
total=0
for number in "$@"; do
    sleep "$pause"
    total=$((total + number * number))
done
# Behind the gate: HOLDFAST_KEY and HOLDFAST_FENCE are in the environment.
"$PYTHON" -m examples.orchestrator.results "$part" "$total"
echo "computed $part" >> "$RESULTS/journal"
