#!/bin/sh
# Prints the size of a library without symbols; fails if it is over a limit.
#
#   size_test.sh LIBRARY BYTES_MAX
set -eu
stripped=$(mktemp -p "${TEST_TMPDIR:-/tmp}")
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$1"
bytes=$(stat -c %s "$stripped")
echo "$1: $bytes bytes stripped, at most $2 allowed"
[ "$bytes" -le "$2" ]
