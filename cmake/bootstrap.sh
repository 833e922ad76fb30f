#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bootstrap.sh [--yes] [preset...]: checks that the tools are installed, then configures, builds and tests each preset
# in turn (demo quick test bench asan tsan slow gpu aarch64; without one: test). On Debian and its relatives it installs
# missing packages with apt, and never removes or upgrades any; elsewhere it names them. Some tests need more packages
# and are skipped without them: these are installed where apt has them, and their absence is no failure. Tests end with
# a list of the documented ways that were not run on this machine (cmake/not_run.py). Status: 0 all passed; 1 a part
# failed or the call is wrong; 2 a package is missing and may not be installed here.
set -u
unset CDPATH
cd "$(dirname "$0")/.." || exit 1

yes=no
presets=
for word in "$@"; do
  case $word in
    --yes | -y) yes=yes ;;
    --) ;;
    demo | quick | test | bench | asan | tsan | slow | gpu | aarch64) presets="$presets $word" ;;
    *)
      echo "chunkmem: '$word' is no preset and no option; usage: [--yes] [demo|quick|test|bench|asan|tsan|slow|gpu|aarch64 ...]" >&2
      exit 1
      ;;
  esac
done
[ -n "$presets" ] || presets=" test"
[ -t 0 ] || yes=yes

on_debian=no
if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then on_debian=yes; fi

has_command() { command -v "$1" >/dev/null 2>&1; }
has_package() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# The version of clang to use: an installed one, else one that apt can install, else the one of the release.
clang_number() {
  for number in 16 19 18 17; do
    if has_command "clang++-$number"; then echo "$number"; return; fi
  done
  for number in 16 19 18 17; do
    if apt-cache policy "clang-$number" 2>/dev/null | grep -q 'Candidate: [^(]'; then echo "$number"; return; fi
  done
  if grep -q '^VERSION_ID="12"' /etc/os-release 2>/dev/null; then echo 16; else echo 19; fi
}

# Debian has no package of a recent enough nvcc: the script names nvcc, and never installs it.
has_nvcc() {
  for place in "${CUDACXX:-nvcc}" nvcc "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if has_command "$place"; then return 0; fi
  done
  return 1
}

missing=
needs_command() { has_command "$1" || missing="$missing $2"; }
needs_package() {
  case " $missing " in *" $1 "*) return ;; esac
  if [ $on_debian = no ] || ! has_package "$1"; then missing="$missing $1"; fi
}

wanted=
wants_package() {
  if [ $on_debian = yes ] && ! has_package "$1"; then
    case " $wanted " in *" $1 "*) ;; *) wanted="$wanted $1" ;; esac
  fi
}
# A CUDA toolkit contains Thrust.
has_thrust() {
  for folder in "${CUDA_PATH:-/usr/local/cuda}" /usr/local/cuda; do
    for place in "$folder/include/cccl" "$folder/include"; do
      if [ -e "$place/thrust/version.h" ]; then return 0; fi
    done
  done
  return 1
}

# The formatter of one version, since other versions format differently. Only Debian 12 has it as a package.
wants_format() {
  if ! has_command clang-format-16 && grep -q '^VERSION_ID="12"' /etc/os-release 2>/dev/null; then
    wants_package clang-format-16
  fi
}

needs_command cmake cmake
needs_command ninja ninja-build
needs_command "${CXX:-g++}" g++
for preset in $presets; do
  packages=
  [ "$preset" = demo ] || has_command python3 || needs_package python3
  case $preset in
    demo) packages="libeigen3-dev libcli11-dev" ;;
    quick) packages="catch2" ;;
    aarch64) packages="catch2 g++-aarch64-linux-gnu qemu-user" ;;
    test | slow | bench) packages="libeigen3-dev libcli11-dev nlohmann-json3-dev catch2" ;;
    asan | tsan)
      number=$(clang_number)
      packages="catch2 clang-$number libclang-rt-$number-dev"
      ;;
    gpu)
      if ! has_nvcc; then
        echo "chunkmem: the preset gpu needs nvcc of CUDA 12 or newer, and none was found" \
          "(developer.nvidia.com/cuda-downloads; CUDACXX may name it)" >&2
        exit 2
      fi
      [ -n "${CHUNKMEM_CATCH2_INCLUDE:-}" ] || packages="catch2"
      ;;
  esac
  for package in $packages; do needs_package "$package"; done
  if [ "$preset" != gpu ] && [ "$preset" != quick ]; then
    wants_package nlohmann-json3-dev
    wants_package libxxhash-dev
  fi
  case $preset in
    test | slow | asan) wants_package libdlpack-dev ;;
  esac
  case $preset in
    test | slow | bench) wants_package valgrind ;; # some figures count instructions
  esac
  case $preset in
    test | slow | bench | asan)
      wants_package libtbb-dev
      has_thrust || wants_package libthrust-dev
      ;;
  esac
  if [ "$preset" = test ]; then
    wants_format
    wants_package python3-yaml # looks at the workflow of the hosted CI
    python3 -m pip --version >/dev/null 2>&1 || wants_package python3-pip # brings the headers of older CUDA
    wants_package libtorch-dev
    wants_package libopenmpi-dev
    wants_package openmpi-bin
  fi
  [ "$preset" != bench ] || wants_package libglpk-dev
done

# Optional packages: installed with the missing ones, or alone where no question is needed and apt knows them.
has_candidate() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }
has_lists() { [ -n "$(find /var/lib/apt/lists -name '*_Packages*' 2>/dev/null | head -n 1)" ]; }
if [ -n "$wanted" ] && [ -z "$missing" ]; then
  known=
  if [ $yes = yes ] && [ "$(id -u)" -eq 0 ]; then
    has_lists || apt-get update </dev/null
    for package in $wanted; do
      if has_candidate "$package"; then known="$known $package"; fi
    done
  fi
  if [ -n "$known" ]; then
    echo "chunkmem: optional parts need$known: will install these with apt"
    # shellcheck disable=SC2086  # a list of words
    env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends --no-remove --no-upgrade \
      -o Acquire::Retries=0 -o Acquire::http::Timeout=20 $known </dev/null ||
      echo "chunkmem: could not; these parts are off"
  else
    echo "chunkmem: optional parts are off without$wanted"
  fi
fi

if [ -n "$missing" ] && [ $on_debian = no ]; then
  echo "chunkmem: this is no Debian; needed, under Debian's names:$missing"
  for tool in cmake ninja "${CXX:-c++}"; do
    has_command "$tool" || { echo "chunkmem: stopped, there is no $tool" >&2; exit 2; }
  done
elif [ -n "$missing" ]; then
  install="apt-get install -y --no-install-recommends --no-remove --no-upgrade$missing"
  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo"
    if ! has_command sudo; then
      printf 'chunkmem: missing:%s\nchunkmem: as root run: apt-get update && %s\n' "$missing" "$install" >&2
      exit 2
    fi
    [ -t 0 ] || as_root="sudo -n"
  fi
  optional=
  for package in $wanted; do
    case " $missing " in *" $package "*) ;; *) optional="$optional $package" ;; esac
  done
  echo "chunkmem: missing:$missing"
  [ -z "$optional" ] || echo "chunkmem: optional parts need:$optional"
  echo "chunkmem: will install these with apt, then build and run:$presets"
  if [ $yes = no ]; then
    printf 'Press Enter to go on, Ctrl-C to stop. '
    read -r _ || exit 2
  fi
  $as_root apt-get update </dev/null
  # shellcheck disable=SC2086  # a list of words
  if ! $as_root env DEBIAN_FRONTEND=noninteractive $install </dev/null; then
    printf 'chunkmem: could not install; as root run: apt-get update && %s\n' "$install" >&2
    exit 2
  fi
  for package in $optional; do
    if has_candidate "$package"; then
      # shellcheck disable=SC2086  # a list of words
      $as_root env DEBIAN_FRONTEND=noninteractive ${install%"$missing"} "$package" </dev/null ||
        echo "chunkmem: could not install $package; the part that needs it is off"
    fi
  done
else
  echo "chunkmem: nothing is missing; will build and run:$presets"
fi

version=$(cmake --version | sed -n '1s/^cmake version //p')
major=${version%%.*}
rest=${version#*.}
if [ "$major" -lt 3 ] || { [ "$major" -eq 3 ] && [ "${rest%%.*}" -lt 25 ]; }; then
  echo "chunkmem: needs CMake 3.25 or newer, this is $version" >&2
  exit 2
fi

# Step by step, as `cmake --workflow` does: a workflow counts a killed ctest as passed (CMake 3.25). The output of each
# test is kept for the list of tests that were not run.
run_preset() {
  rm -f "build/$1/results.xml"
  cmake --preset "$1" && cmake --build --preset "$1" || return 1
  case $1 in
    demo | bench) ;;  # their build runs them
    *) ctest --preset "$1" --output-junit "$PWD/build/$1/results.xml" --test-output-size-passed 1000000 ;;
  esac
}

minutes() { awk "BEGIN { printf \"%.1f min\", ($2 - $1) / 60 }"; }
begin=$(date +%s)
parts=
for preset in $presets; do
  part_begin=$(date +%s)
  if ! run_preset "$preset"; then
    echo "chunkmem: $preset failed after $(minutes "$part_begin" "$(date +%s)")${parts:+; passed before:$parts}"
    exit 1
  fi
  part="$preset $(minutes "$part_begin" "$(date +%s)")"
  echo "chunkmem: $part"
  parts="$parts${parts:+,} $part"
done
echo "chunkmem: all passed in $(minutes "$begin" "$(date +%s)"):$parts"
case $presets in " demo" | " quick") exit 0 ;; esac
# shellcheck disable=SC2086  # a list of words
python3 -B cmake/not_run.py $presets
