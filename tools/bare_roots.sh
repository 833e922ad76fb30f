#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the README's two commands in fresh roots of Debian, each command in a root of its own:
#   sh tools/bare_roots.sh [system...] [demo|quick|tests...]
# Systems:
#   debian12, debian13   minimal
#   debian12_tools       minimal, with pkg-config, cmake and g++, without MPI
#   debian12_user        minimal, as a user without root rights and without sudo: a command has to print the apt command
#                        to run, and to return 2
# Without a system all of them run, without a command both commands of the README. `quick` is sh tests/run.sh quick.
# Debootstrap makes the roots from the sources that apt has on this machine. BARE_ROOTS names the folder to work in
# (build/bare_roots). The folder keeps the packages that were fetched, and in logs/ the output of each command. The
# roots are removed, also after a failure.
# Status: 0 each command returned the expected code; 1 a command did not, or the call is wrong; 2 root rights or a tool
# are missing here.
set -u
unset CDPATH

usage="usage: [debian12|debian13|debian12_tools|debian12_user ...] [demo|quick|tests ...]"
systems=
commands=
for word in "$@"; do
  case $word in
    debian12 | debian13 | debian12_tools | debian12_user) systems="$systems $word" ;;
    demo | quick | tests) commands="$commands $word" ;;
    *)
      echo "bare_roots: '$word' is no system and no command; $usage" >&2
      exit 1
      ;;
  esac
done
[ -n "$systems" ] || systems="debian12 debian13 debian12_tools debian12_user"
[ -n "$commands" ] || commands="demo tests"

if [ "$(id -u)" -ne 0 ]; then
  echo "bare_roots: roots are made and entered with root rights: run it as root, or by sudo" >&2
  exit 2
fi
for tool in apt-get chroot debootstrap flock mount setsid tar unshare; do
  command -v "$tool" >/dev/null || {
    echo "bare_roots: there is no $tool (Debian: apt-get install debootstrap mount util-linux)" >&2
    exit 2
  }
done

# In a mount namespace of its own, so that no mount outlives this script, even if it is killed.
if [ -z "${BARE_ROOTS_ALONE:-}" ]; then
  BARE_ROOTS_ALONE=yes
  export BARE_ROOTS_ALONE
  unshare --mount true || {
    echo "bare_roots: mounts are not allowed here (a container may need --privileged)" >&2
    exit 2
  }
  exec unshare --mount --propagation private sh "$0" "$@"
fi

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
work=${BARE_ROOTS:-$top/build/bare_roots}
mkdir -p "$work/logs" || exit 1
work=$(cd "$work" && pwd) || exit 1
exec 9>"$work/lock"
flock --nonblock 9 || { echo "bare_roots: another run works in $work" >&2; exit 1; }
rm -f "$work/group" # of a run that was killed: another group may have its number by now

# remove <root>: unmounts and deletes the root. Nothing is deleted where an unmount fails.
remove() {
  for place in proc dev/pts dev/shm dev var/cache/apt/archives; do
    umount -l "$1/$place" 2>/dev/null # a process that was ended may hold it a moment longer
  done
  if grep -q " $1/" /proc/mounts; then
    echo "bare_roots: something is still mounted in $1, so it is left there" >&2
  else
    rm -rf --one-file-system "$1"
  fi
}
clean_up() {
  for root in "$work"/root.* "$work"/base.*; do
    if [ -d "$root" ]; then remove "$root"; fi
  done
}
stop() {
  if [ -e "$work/group" ]; then kill -s TERM -- "-$(cat "$work/group")" 2>/dev/null; fi
  rm -f "$work/group"
  clean_up
}
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
clean_up # of a run that was killed

# sources_of <codename>: this machine's own sources of Debian, for another release.
# shellcheck source=/dev/null
mine=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# shellcheck disable=SC2016  # apt reads these names
sources_of() {
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sed -n "s/^Debian \([^ ]*\) $mine\(-updates\|-security\|\) /deb \1 $1\2 /p" | sort -u
}
if [ -z "$(sources_of "$mine")" ]; then apt-get update </dev/null; fi
if [ -z "$(sources_of "$mine")" ]; then
  echo "bare_roots: apt has no source of Debian ${mine:-}; the roots are made from this machine's own" >&2
  exit 2
fi

# base <codename>: makes <work>/base.<codename> if it does not exist. Packages are in <work>/packages.<codename>.
base() {
  place=$work/base.$1
  if [ -d "$place" ]; then return 0; fi
  sources=$(sources_of "$1")
  mirror=$(echo "$sources" | sed -n "s/^deb \([^ ]*\) $1 .*/\1/p" | sed 1q)
  authorities=
  case $sources in *https:*) authorities=--include=ca-certificates ;; esac
  mkdir -p "$work/packages.$1"
  debootstrap --variant=minbase --cache-dir="$work/packages.$1" $authorities "$1" "$place" "$mirror" || return 1
  rm -f "$place"/var/cache/apt/archives/*.deb
  echo "$sources" >"$place/etc/apt/sources.list"
  # The network settings by which this machine reaches its sources. Hooks of its packages are left out.
  apt-config dump | grep -E '^Acquire::(http|https|Check|Retries|Languages)' >"$place/etc/apt/apt.conf.d/90machine"
  cp -L /etc/resolv.conf /etc/hosts "$place/etc/"
}

# enter <root> <command...>: runs a command in the root, with only the environment of a login. The processes are a
# group, whose number is in <work>/group.
enter() (
  root=$1
  shift
  # shellcheck disable=SC2016  # for the inner shell
  setsid sh -c 'echo $$ >"$0" && exec "$@"' "$work/group" chroot ${as:+--userspec="$as"} "$root" \
    /usr/bin/env -i HOME="$home" TERM=dumb LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@" </dev/null
  status=$?
  rm -f "$work/group"
  exit $status
)

# prepare <root> <codename> <system>: a copy of the base with this tree in /chunkmem.
prepare() {
  base "$2" && cp -a --reflink=auto "$work/base.$2" "$1" && mkdir -p "$1/dev/shm" || return 1
  mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev" && mount -t tmpfs shm "$1/dev/shm" &&
    mount --bind /dev/pts "$1/dev/pts" && mount --bind "$work/packages.$2" "$1/var/cache/apt/archives" || return 1
  mkdir "$1/chunkmem"
  (cd "$top" && tar -c --exclude=./build --exclude=./.git .) | tar -x -C "$1/chunkmem" || return 1
  case $3 in
    debian12_tools)
      enter "$1" apt-get update &&
        enter "$1" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends pkg-config cmake g++
      ;;
    debian12_user)
      enter "$1" useradd --create-home user && enter "$1" chown -R user:user /chunkmem && as=user:user home=/home/user
      ;;
  esac
}

minutes() { awk "BEGIN { printf \"%.1f\", ($2 - $1) / 60 }"; }
table="root | command | minutes | exit code | last line"
failed=no
for system in $systems; do
  codename=bookworm
  wanted=0
  case $system in
    debian13) codename=trixie ;;
    debian12_user) wanted=2 ;;
  esac
  for name in $commands; do
    script=tests/run.sh
    preset=
    if [ "$name" = demo ]; then script=examples/run.sh; fi
    if [ "$name" = quick ]; then preset=quick; fi
    root=$work/root.$system.$name
    log=$work/logs/$system.$name.txt
    as=
    home=/root
    command="sh $script${preset:+ $preset}"
    echo "bare_roots: $command in $system, output in $log"
    begin=$(date +%s)
    if prepare "$root" "$codename" "$system" >"$log" 2>&1; then
      begin=$(date +%s)
      enter "$root" sh -c "cd /chunkmem && exec $command" >"$log" 2>&1 &
      wait $! # a signal ends it
      status=$?
    else
      status="no root"
    fi
    if [ "$status" = 2 ] && ! grep -q '^chunkmem: as root run: apt-get ' "$log"; then
      status="2 without the apt command"
    fi
    [ "$status" = $wanted ] || failed=yes
    table="$table
$system | $command | $(minutes "$begin" "$(date +%s)") | $status | $(grep . "$log" | tail -n 1)"
    remove "$root"
  done
done
printf '\n%s\n' "$table"
[ $failed = no ]
