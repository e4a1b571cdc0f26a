#!/usr/bin/env bash
# Installs a built tree to a fresh folder, then builds and runs the README's example against it, once through find_package and
# once through pkg-config. Usage: check_install.sh BUILD_DIR
set -euo pipefail
build_dir=$(realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SACCADE_CACHE_DIR="$work/cache"

fail() {
  echo "check_install: $*" >&2
  exit 1
}

cmake --install "$build_dir" --prefix "$work/first" > "$work/install.log"
# An install tree can be moved: nothing in it may name the folder that it was installed to, or the source tree.
mv "$work/first" "$work/prefix"
prefix="$work/prefix"
library=$(find "$prefix" -name libsaccade.so)
[ -n "$library" ] || fail "libsaccade.so was not installed"
if grep -rIl -e "$work/first" -e "$(realpath "$here/../..")" "$prefix"; then fail "the files above name a build folder"; fi

exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | grep -v '^saccade_' || true)
[ -z "$exported" ] || fail "exports more than saccade_*: $exported"
strip -o "$work/stripped.so" "$library"
size=$(stat -c %s "$work/stripped.so")
[ "$size" -lt $((20 * 1024 * 1024)) ] || fail "libsaccade.so has $size bytes without debug information; 20 MB is the limit"

echo "find_package:"
cmake -S "$here/find_package" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" > "$work/configure.log" || { cat "$work/configure.log"; fail "find_package failed"; }
cmake --build "$work/consumer" > "$work/build.log" || { cat "$work/build.log"; fail "the example does not build"; }
"$work/consumer/attention" | head -1

echo "pkg-config:"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name saccade.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # the flags are meant to be split
${CXX:-c++} -std=c++17 "$here/attention.cpp" $(pkg-config --cflags --libs saccade) -o "$work/attention"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir saccade) "$work/attention" | head -1

echo "plain C:"
# shellcheck disable=SC2046
${CC:-cc} -std=c99 -Wall -Wextra -Wpedantic -Werror "$here/version.c" $(pkg-config --cflags --libs saccade) -o "$work/version"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir saccade) "$work/version"
echo "check_install: ok ($size bytes)"
