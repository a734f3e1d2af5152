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
echo "{\"result\": $total, \"fence\": $HOLDFAST_FENCE}" > "$RESULTS/$part.draft"
mv "$RESULTS/$part.draft" "$RESULTS/$part.json"
echo "computed $part" >> "$RESULTS/journal"
