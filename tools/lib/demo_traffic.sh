#!/usr/bin/env bash
# Inside a fabric: what tools/demo shows. Status 0 if each act ended as it must.
set -euo pipefail
# shellcheck source=tools/lib/common.sh
source "$(dirname "$0")/common.sh"
fabric=$RAILHOP_ROOT/tools/fabric
work=$(mktemp -d)
server=
trap 'if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; fi; rm -rf "$work"' EXIT

# free_port: a TCP port that nobody listens on, for the programs' own hand-shake.
free_port() {
  local port
  while port=$((20000 + RANDOM % 20000)); ss -Hltn "sport = :$port" | grep -q .; do :; done
  echo "$port"
}

# traffic SECONDS: 1 MiB RDMA writes from soft0 to soft1; the sender's report in $work/sender.
# Its status is the sender's.
traffic() {
  local port seconds=$1 status=0
  port=$(free_port)
  local options=(--size=1048576 --duration="$seconds" --port="$port" --CPU-freq)
  ib_write_bw --ib-dev=soft1 "${options[@]}" >"$work/receiver" 2>&1 &
  server=$!
  for _ in $(seq 100); do
    if ss -Hltn "sport = :$port" | grep -q .; then break; fi
    sleep 0.05
  done
  ib_write_bw --ib-dev=soft0 "${options[@]}" localhost >"$work/sender" 2>&1 || status=$?
  if ((status)); then kill "$server" 2>/dev/null || true; fi
  wait "$server" || true
  server=
  return "$status"
}

# average: the sender's bandwidth, in MB/s.
average() {
  awk '$1 == 1048576 { print $4 " MB/s" }' "$work/sender"
}

fail() {
  cat "$work/sender" >&2
  die "demo: $*"
}

echo "A fresh fabric with software NICs, as any verbs program sees it:"
ibv_devices | sed -n '3,$p'
echo
echo "1. ib_write_bw, unmodified, writes from soft0 to soft1 for 3 s."
traffic 3 || fail "traffic over a healthy fabric failed"
echo "   $(average)"

echo "2. The same for 5 s; the cable of soft1 is pulled after 2 s and put back 0.3 s later."
(sleep 2; "$fabric" fault soft1 down for 300ms >/dev/null) &
traffic 5 || fail "the cable was back in time, yet the program failed"
wait
echo "   $(average), no error: the NIC's own retries bridged the gap."

echo "3. The same, but the cable stays out."
(sleep 2; "$fabric" fault soft1 down >/dev/null) &
if traffic 6; then fail "the cable was out, yet the program went on"; fi
wait
echo "   $(grep -m1 -oiE 'failed status [0-9]+.*' "$work/sender" || fail "no error status")"
echo
echo "That error is what ends a job today. Railhop's plugin will move the traffic to another NIC"
echo "instead; it cannot do that yet, so this demo shows the fabric that it will be proved on."
