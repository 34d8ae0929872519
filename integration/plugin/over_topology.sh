#!/bin/sh
# Runs a test program inside a software fabric.
#
#   over_topology.sh RAILHOP_FABRIC LIBRARY TOPOLOGY PLUGIN PROGRAM [ARGUMENT...]
#
# The program finds the plugin in RAILHOP_TEST_PLUGIN. Both ends are on this machine: sockets on lo.
set -eu
launcher=$1 library=$2 topology=$3 plugin=$4
shift 4
RAILHOP_TEST_PLUGIN=$PWD/$plugin
NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME-lo}
export RAILHOP_TEST_PLUGIN NCCL_SOCKET_IFNAME
exec "$launcher" run --library-dir "$(dirname "$library")" --topology "$topology" -- "$@"
