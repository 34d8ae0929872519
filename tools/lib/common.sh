# shellcheck shell=bash
# Sourced by the tools: where things are, and how they speak.

RAILHOP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Caches live outside the checkout, so that a fresh clone does not pay again.
if [[ -z ${RAILHOP_CACHE:-} ]]; then
  if [[ $(id -u) == 0 ]]; then
    RAILHOP_CACHE=/var/cache/railhop
  else
    RAILHOP_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/railhop
  fi
fi
export RAILHOP_ROOT RAILHOP_CACHE

# say TEXT: progress, on standard error.
say() {
  printf 'railhop: %s\n' "$*" >&2
}

# die TEXT: ends with status 1.
die() {
  say "$*"
  exit 1
}

# hash_of FILE...: 16 hex digits of their contents.
hash_of() {
  cat -- "$@" | sha256sum | cut -c1-16
}
