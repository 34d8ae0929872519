#!/bin/bash
# Builds the guest kernel: build_kernel.sh VERSION OUTPUT
#
# VERSION is the version of Debian's package linux-source-6.1; OUTPUT is the file to write, a
# program that is a Linux kernel (it needs this machine's C library: the driver that joins two
# guests allows no static link). All else happens in a temporary folder beside OUTPUT (1.8 GB while
# it runs, nothing afterwards). Takes about eight minutes of CPU time; RAILHOP_JOBS sets the number
# of parallel compilers (default: one for each processor).
#
# This file is part of the kernel's cache key: a change here makes everyone build again.
set -euo pipefail

package=linux-source-6.1
version=$1
output=$2
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
jobs=${RAILHOP_JOBS:-$(nproc)}

fail() {
  echo "uml build: $*" >&2
  exit 1
}

# A machine without them would fail minutes later, with a message that names something else.
for tool in gcc make flex bison bc xz patch dpkg-deb apt-get; do
  command -v "$tool" >/dev/null || fail "$tool is not installed; run tools/setup"
done
[ -e /usr/include/libelf.h ] || fail "libelf-dev is not installed; run tools/setup"

work=$(mktemp -d "$(dirname "$output")/.work-XXXXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "uml build: fetching $package $version" >&2
sandbox=()
if [ "$(id -u)" = 0 ]; then sandbox=(-o APT::Sandbox::User=root); fi
(cd "$work" && apt-get "${sandbox[@]}" -q download "$package=$version" >download.log 2>&1) || {
  cat "$work/download.log" >&2
  fail "apt-get could not download $package=$version; try apt-get update"
}

source=$work/source
objects=$work/objects
mkdir "$source" "$objects"
dpkg-deb --fsys-tarfile "$work"/${package}_*.deb |
  tar -xO "./usr/src/$package.tar.xz" |
  tar -xJ -C "$source" --strip-components=1
for patch in "$recipe"/patches/*.patch; do
  patch -s -p1 -d "$source" <"$patch" || fail "$(basename "$patch") does not apply to $version"
done

# The same inputs give the same bytes.
export KBUILD_BUILD_USER=railhop KBUILD_BUILD_HOST=railhop KBUILD_BUILD_TIMESTAMP='2024-01-01'
export ARCH=um
kernel_make=(nice -n 10 make -s -C "$source" "O=$objects" "-j$jobs")

"${kernel_make[@]}" defconfig >"$work/defconfig.log"
(cd "$source" && scripts/kconfig/merge_config.sh -m -O "$objects" "$objects/.config" \
  "$recipe/kernel.config") >"$work/merge.log" 2>&1
"${kernel_make[@]}" olddefconfig 2>>"$work/merge.log"
# Kconfig drops what it cannot give without a word, so look.
while read -r line; do
  case $line in
    CONFIG_*=*) grep -qxF "$line" "$objects/.config" || fail "kernel.config: no effect: $line" ;;
    '# CONFIG_'*' is not set')
      name=${line#\# } name=${name% is not set}
      ! grep -q "^$name=" "$objects/.config" || fail "kernel.config: no effect: $line"
      ;;
  esac
done <"$recipe/kernel.config"

echo "uml build: compiling with $jobs jobs (several minutes)" >&2
"${kernel_make[@]}" linux >"$work/make.log" 2>&1 || {
  tail -n 40 "$work/make.log" >&2
  fail "the kernel does not compile"
}
strip -o "$work/linux" "$objects/linux"
mv "$work/linux" "$output"
