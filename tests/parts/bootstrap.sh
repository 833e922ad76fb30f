#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cmake/bootstrap.sh installs no package that it has not named before, and none twice. Scripts play apt.
#   sh bootstrap.sh <top of the tree> <scratch folder>
set -eu
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/bin"
play() {
  printf '#!/bin/sh\n%s\n' "$2" >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
play id 'echo 0'
play dpkg-query 'exit 1'
play apt-cache 'echo "  Candidate: 1"'
play cmake 'echo "cmake version 3.1"' # too old: nothing is built
play apt-get "[ \"\$1\" = install ] || exit 0
for word; do
  case \$word in
    install | -* | Acquire*) ;;
    *)
      echo \"\$word\" >>'$scratch/installed'
      grep -qF -- \" \$word\" '$scratch/said' || echo \"\$word was not named before\" >>'$scratch/mistakes'
      ;;
  esac
done"
: >"$scratch/mistakes"
status=0
PATH="$scratch/bin:$PATH" sh "$1/cmake/bootstrap.sh" test >"$scratch/said" 2>&1 </dev/null || status=$?
[ $status = 2 ] || echo "the status is $status" >>"$scratch/mistakes"
grep -qx valgrind "$scratch/installed" || echo "no optional package was installed" >>"$scratch/mistakes"
sort "$scratch/installed" | uniq -d | sed 's/$/ was installed twice/' >>"$scratch/mistakes"
if [ -s "$scratch/mistakes" ]; then
  cat "$scratch/said" "$scratch/mistakes"
  exit 1
fi
