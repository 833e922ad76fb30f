#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/bare_roots.sh ends no group of processes whose number a killed run has left: another program may have it by now.
#   sh bare_roots.sh <top of the tree> <scratch folder>
set -eu
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/bin" "$scratch/place"
for tool in setsid flock; do
  command -v $tool >/dev/null || { echo "SKIPPED: there is no $tool"; exit 0; }
done
play() {
  printf '#!/bin/sh\n%s\n' "$2" >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
play id 'echo 0'
for name in apt-get chroot debootstrap mount umount unshare; do play $name 'exit 0'; done # no source of Debian: it ends
# Another program, in a group of its own, which has told its number before it goes on.
mkfifo "$scratch/number"
# shellcheck disable=SC2016  # for the inner shell
setsid sh -c 'echo $$ >"$0"; exec tail -f /dev/null' "$scratch/number" &
read -r group <"$scratch/number"
trap 'kill -s KILL -- "-$group"' EXIT
echo "$group" >"$scratch/place/group"
status=0
PATH="$scratch/bin:$PATH" BARE_ROOTS="$scratch/place" BARE_ROOTS_ALONE=yes \
  sh "$1/tools/bare_roots.sh" debian12 demo >"$scratch/said" 2>&1 </dev/null || status=$?
if [ $status != 2 ] || [ -e "$scratch/place/group" ] || ! kill -s 0 -- "-$group"; then
  cat "$scratch/said"
  echo "status $status; the other program has to run on"
  exit 1
fi
