#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the site of the docs: sh tools/site.sh [--check] [folder to build in, build/site]; then open <folder>/html/index.html.
# <folder>/html is there only if nothing failed. Pages of a run that failed are in <folder>/unfinished.
# --check opens every page in Chromium, at the width of a screen and of a telephone (Debian: apt-get install chromium chromium-driver).
# Needs Python 3.11 with venv, and Doxygen (Debian: apt-get install python3-venv doxygen). Sphinx and its parts, of the
# versions in docs/site/requirements.txt, go into a virtual environment in that folder. PYTHON names another Python.
set -eu
check=no
if [ "${1:-}" = --check ]; then check=yes; shift; fi
case ${1:-} in -*) echo "site: '$1' is no option; usage: sh tools/site.sh [--check] [folder to build in]" >&2; exit 2 ;; esac
top=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$top/build/site}
mkdir -p "$build"
build=$(cd "$build" && pwd)
rm -rf "$build/html"
python=$build/venv/bin/python
command -v doxygen >/dev/null || { echo "site: there is no doxygen (Debian: apt-get install doxygen)" >&2; exit 2; }
if ! cmp -s "$top/docs/site/requirements.txt" "$build/venv/installed.txt"; then
  "${PYTHON:-python3}" -m venv --clear "$build/venv" || { echo "site: no venv (Debian: apt-get install python3-venv)" >&2; exit 2; }
  "$python" -m pip install --quiet --requirement "$top/docs/site/requirements.txt"
  cp "$top/docs/site/requirements.txt" "$build/venv/installed.txt"
fi
rm -rf "$build/xml" "$build/doctrees" "$build/unfinished"
trap '[ -e "$build/html" ] || echo "site: failed, and there is no $build/html" >&2' EXIT
cd "$top"
CHUNKMEM_SITE=$build doxygen docs/site/Doxyfile
"$python" docs/site/stage.py "$top" "$build/xml" "$build/source"
CHUNKMEM_TOP=$top CHUNKMEM_XML=$build/xml "$python" -m sphinx -W --keep-going -q -j auto -b html -d "$build/doctrees" "$build/source" "$build/unfinished"
if [ $check = yes ]; then
  "$python" -m pip install --quiet --requirement "$top/docs/site/check_requirements.txt"
  "$python" "$top/tools/check_site.py" "$build/unfinished"
fi
mv "$build/unfinished" "$build/html"
echo "site: $build/html/index.html"
