#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The pictures in docs/pictures, from programs that were built with the preset bench:
#   cmake --preset bench -DCHUNKMEM_BUILD_EXAMPLES=ON && cmake --build build/bench --target max_model cost_aware_bench
#   sh tools/pictures.sh [folder of the build, build/bench] [folder to write to, docs/pictures]
# No picture depends on a clock: the same sources give the same pictures, and one version of matplotlib the same bytes.
# PYTHON names a Python with matplotlib (python3).
top=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$top/build/bench}
out=${2:-$top/docs/pictures}
python=${PYTHON:-python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" || exit 1
for program in max_model cost_aware_bench; do
  [ -x "$build/bin/$program" ] || { echo "pictures: there is no $build/bin/$program: build it first, as the top of this script says" >&2; exit 2; }
done
"$build/bin/max_model" --machine "$top/examples/max_model/machines/rtx_4090.json" --model PatrickStar/GPT2_4B --micro-batch 6 \
  --strategies planned --timeline "$work/step.csv" >"$work/step.txt" 2>&1 || { cat "$work/step.txt" >&2; exit 1; }
"$build/bin/cost_aware_bench" "$work/moved.csv" >"$work/moved.txt" 2>&1 || { cat "$work/moved.txt" >&2; exit 1; }
"$python" "$top/tools/plot.py" step "$work/step.csv" "$out/step.svg" &&
  "$python" "$top/tools/plot.py" policies "$work/moved.csv" "$out/policies.svg" "24 layers of 4 chunks; first half"
