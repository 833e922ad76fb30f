#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/site.sh leaves a site under html/ only if nothing failed. Scripts play Doxygen and a Python with Sphinx.
#   sh site.sh <top of the tree> <scratch folder>
set -eu
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/bin" "$scratch/build/venv/bin"
cp "$1/docs/site/requirements.txt" "$scratch/build/venv/installed.txt"
play() {
  printf '#!/bin/sh\n%s\n' "$2" >"$scratch/$1"
  chmod +x "$scratch/$1"
}
# shellcheck disable=SC2016  # for the inner shell
play bin/doxygen '[ "$FAILS" != doxygen ]'
# shellcheck disable=SC2016
play build/venv/bin/python 'case " $* " in
  *" sphinx "*) for last; do :; done; mkdir -p "$last"; echo page >"$last/index.html"; [ "$FAILS" != sphinx ] ;;
  *check_site.py*) [ -e "$2/index.html" ] && [ "$FAILS" != browser ] ;;
  *stage.py*) [ "$FAILS" != stage ] ;;
  *) exit 0 ;;
esac'
make() {
  FAILS=$1
  export FAILS
  shift
  status=0
  PATH="$scratch/bin:$PATH" sh "$top/tools/site.sh" "$@" "$scratch/build" >"$scratch/said" 2>&1 || status=$?
}
fail() {
  cat "$scratch/said"
  echo "site: $1" >&2
  exit 1
}
top=$1
make nothing --check
[ $status = 0 ] && [ -e "$scratch/build/html/index.html" ] || fail "a site without a failure is not there, status $status"
for part in doxygen stage sphinx browser; do
  mkdir -p "$scratch/build/html" # of a run before
  make $part --check
  [ $status != 0 ] || fail "status 0, and $part failed"
  [ ! -e "$scratch/build/html" ] || fail "$part failed, and there is a site"
  grep -q 'site: failed' "$scratch/said" || fail "nothing is said of the failure of $part"
done
make browser
[ $status = 0 ] && [ -e "$scratch/build/html/index.html" ] || fail "without --check a browser was asked"
