#!/usr/bin/env bash
# Fetches Debian source packages and unpacks them with Debian's patches: Bazel builds Abseil,
# protobuf and googletest from them. apt checks the signatures. /etc/apt is not touched: the
# list of sources is a private one.
#   tools/lib/fetch_debsrc.sh DEST
set -euo pipefail
dest=${1:?usage: fetch_debsrc.sh DEST}
packages=(abseil protobuf googletest)

missing=()
for p in "${packages[@]}"; do
  [[ -e $dest/$p/.stamp ]] || missing+=("$p")
done
((${#missing[@]})) || exit 0

mkdir -p "$dest/.apt/lists/partial" "$dest/.apt/parts"
cat >"$dest/.apt/deb-src.sources" <<EOS
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
EOS
apt=(apt-get -qq
  -o "Dir::Etc::sourcelist=$dest/.apt/deb-src.sources"
  -o "Dir::Etc::sourceparts=$dest/.apt/parts"
  -o "Dir::State::lists=$dest/.apt/lists"
  -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache="
  -o "APT::Sandbox::User=$(id -un)")
"${apt[@]}" update
for p in "${missing[@]}"; do
  tmp=$(mktemp -d "$dest/.tmp.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  # dpkg-source has no keys of the maintainers and says so; apt has checked the archive's signature.
  (cd "$tmp" && "${apt[@]}" source --download-only "$p" &&
    dpkg-source -q --no-copy -x ./*.dsc src >/dev/null) 2> >(grep -v '^gpgv:' >&2)
  version=$(sed -n 's/^Version: //p' "$tmp"/*.dsc | head -1)
  echo "$p $version" >"$tmp/src/.stamp"
  rm -rf "${dest:?}/$p"
  mv "$tmp/src" "$dest/$p"
  rm -rf "$tmp"
  trap - EXIT
  echo "fetched Debian's source of $p $version" >&2
done
