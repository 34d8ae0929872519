#!/bin/sh
# Searches the model of failover: failover.pml within the bounds of configurations.txt.
#
#   check.sh ci             what CI runs
#   check.sh all            everything
#   check.sh NAME...        these; with KEEP=FOLDER (absolute) a counterexample stays in FOLDER/NAME,
#                           with SHORT=1 it is the shortest: `spin -t -p -g -DX=1 failover.pml` there
#
# Needs spin and gcc. Status 1 if anything came out other than expected.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
table=$here/configurations.txt
case ${1:-} in
'' | -*)
  sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,9p >&2
  exit 2
  ;;
esac
temporary=
if [ -z "${KEEP:-}" ]; then
  temporary=$(mktemp -d "${TEST_TMPDIR:-${TMPDIR:-/tmp}}/model.XXXXXX") || exit 1
  trap 'rm -rf "$temporary"' EXIT
fi
work=${KEEP:-$temporary}

# one NAME EXPECTED DEFINITION...: 0 if it comes out as expected.
one() {
  name=$1 expected=$2
  shift 2
  flags=$(printf -- '-D%s ' "$@")
  mkdir -p "$work/$name" && cd "$work/$name" || return 1
  cp "$here/failover.pml" . || return 1
  # shellcheck disable=SC2086 # one word for each
  spin -a $flags failover.pml >spin.out 2>&1 || { tail -3 spin.out; return 1; }
  # SHORT: the shortest run to an error, so that it can be read; takes longer.
  how=-O2 run=
  if [ "$expected" = fails ]; then how=-O1; fi
  if [ -n "${SHORT:-}" ]; then how='-O1 -DREACH' run=-i; fi
  # shellcheck disable=SC2086
  gcc $how -w -DSAFETY -DCOLLAPSE -DMEMLIM=8000 -o pan pan.c >gcc.out 2>&1 || { tail -3 gcc.out; return 1; }
  ./pan -m200000 $run >pan.out 2>&1
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out | tail -1)
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out | tail -1)
  if [ "${errors:-0}" != 0 ]; then
    got=fails
  elif [ -z "$errors" ] || grep -qE 'Search not completed|too small|out of memory' pan.out; then
    got=unfinished
  else
    got=ok
  fi
  sign=$(sed -n 's/^pan:1: //p' pan.out | tail -1)
  printf '%-18s %s, %s states%s\n' "$name" "$got" "${states:-?}" "${sign:+: $sign}"
  [ "$got" = "$expected" ] || { echo "$name: expected $expected"; return 1; }
}

bad=0 count=0
while read -r name expected when definitions; do
  case $name in '' | '#'*) continue ;; esac
  case " $* " in
  *" $name "* | ' all ') ;;
  ' ci ') [ "$when" = ci ] || continue ;;
  *) continue ;;
  esac
  count=$((count + 1))
  # shellcheck disable=SC2086
  (one "$name" "$expected" $definitions) </dev/null || bad=$((bad + 1))
done <"$table"
[ "$count" != 0 ] || { echo "$*: none of configurations.txt" >&2; exit 2; }
echo "$count searched, $bad not as expected"
[ "$bad" = 0 ]
