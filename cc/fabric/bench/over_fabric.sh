#!/bin/sh
# Runs a program over a fresh software fabric and checks that nothing of it stays behind.
#
#   over_fabric.sh RAILHOP_FABRIC LIBRARY PROGRAM [ARGUMENT...]
#
# Given -c N in front, N processors are used (1: both ends of everything share one).
set -eu
cpus=
if [ "$1" = -c ]; then
  cpus=$2
  shift 2
fi
launcher=$1 library=$2
shift 2
if [ -n "$cpus" ]; then
  taskset -c "0-$((cpus - 1))" "$launcher" run --library-dir "$(dirname "$library")" -- "$@"
else
  "$launcher" run --library-dir "$(dirname "$library")" -- "$@"
fi
for left in /dev/shm/*railhop*; do
  if [ -e "$left" ]; then
    echo "left behind: $left" >&2
    exit 1
  fi
done
