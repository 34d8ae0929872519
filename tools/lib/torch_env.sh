#!/usr/bin/env bash
# Makes the Python environment with torch that tests of railhop.torch run in, if it is not there
# yet, and prints its interpreter. It is large, so only those who need it pay for it; like .venv it
# lies outside the checkout, in a folder named by the hash of its requirements.
#
#   tools/lib/torch_env.sh           makes it
#   tools/lib/torch_env.sh --check   only says where it is; status 1 if it is not there
set -euo pipefail
# shellcheck source=tools/lib/common.sh
source "$(dirname "$0")/common.sh"

requirements=$RAILHOP_ROOT/tools/lib/torch/requirements.txt
env=$RAILHOP_CACHE/torch/$(hash_of "$requirements")
case ${1:-} in
'') ;;
--check)
  [[ -e $env/.complete ]] || exit 1
  echo "$env/bin/python3"
  exit
  ;;
*) die "unknown argument '$1' (allowed: --check, or none)" ;;
esac

mkdir -p "$RAILHOP_CACHE"
# Two at a time would trip over each other.
exec 9>"$RAILHOP_CACHE/torch.lock"
flock 9
if [[ ! -e $env/.complete ]]; then
  say "making the Python environment with torch, $env (once; about a minute, 3.6 GB)"
  rm -rf "$RAILHOP_CACHE/torch"
  mkdir -p "$RAILHOP_CACHE/torch"
  /usr/bin/python3 -m venv "$env"
  "$env/bin/pip" -q --disable-pip-version-check install --no-cache-dir --no-deps \
    --require-hashes --only-binary :all: -r "$requirements"
  "$env/bin/python3" -c 'import torch' || die "torch does not load"
  touch "$env/.complete"
fi
echo "$env/bin/python3"
