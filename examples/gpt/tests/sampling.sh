# SPDX-License-Identifier: Apache-2.0
# Ratios of sampled inputs that are measured before a training, and tables of their noise.
# Usage: sampling.sh <gpt> <folder for files> [python3 plot.py]
set -eu
gpt=$1
place=$2
shift 2
rm -rf "$place"
mkdir -p "$place"
cd "$place"

fail() {
  echo "FAILED: $*"
  cat said
  exit 1
}
# trains <width> <layers> <arguments>
trains() {
  width=$1
  layers=$2
  shift 2
  "$gpt" --heads 2 --context 32 --batch 2 --sample 0 --threads 1 --steps 4 --width "$width" --layers "$layers" "$@" > said 2>&1 ||
    fail "exit status $? of $*"
}
# refused <piece of the sentence> <width> <layers> <arguments>: exit status 2, one sentence, no step
refused() {
  piece=$1
  width=$2
  layers=$3
  shift 3
  status=0
  "$gpt" --heads 2 --context 32 --batch 2 --sample 0 --threads 1 --steps 4 --width "$width" --layers "$layers" "$@" > said 2>&1 || status=$?
  [ "$status" = 2 ] || fail "exit status $status of $*"
  grep -q -e "$piece" said || fail "no '$piece' from $*"
  [ "$(grep -c '^gpt: ' said)" = 1 ] || fail "more than a sentence from $*"
  ! grep -q '^step' said || fail "a step was trained by $*"
}
# What a report says of the training alone.
results() {
  sed -n '/"losses"/p; /"parameter_hash"/p' "$1"
}

# Measured ratios do not depend on the capacity, are written to a file, and the file gives the same bits.
trains 32 2 --activations sample=auto --sample-room 40% --report measured.json --verify
mv sample_ratios.txt first.txt
trains 32 2 --activations sample=auto --sample-room 40% --sample-file second.txt --device-memory 400KiB
cmp first.txt second.txt || fail "two measurements have two files"
[ "$(grep -c '^input ratio 0\.[0-9]* kept [1-9][0-9]* exact 8192 noise 0\.[0-9]* name layer [01] attended$' first.txt)" = 2 ] ||
  fail "no two inputs in the file: $(cat first.txt)"
[ "$(sed -n 's/.* kept \([0-9]*\) .*/\1/p' first.txt | awk '{ sum += $1 } END { print (sum <= 0.4 * 16384 && sum > 0.3 * 16384) }')" = 1 ] ||
  fail "more is kept than there is room for, or too little: $(cat first.txt)"
trains 32 2 --activations sample=first.txt --report from_file.json
results measured.json > of_measured
results from_file.json > of_file
cmp of_measured of_file || fail "a file gives other bits than the measurement that wrote it"
trains 32 2 --activations sample=0.3 --report plain.json
results plain.json > of_plain
! cmp -s of_file of_plain || fail "ratios change nothing"

# Tables of noise change no bit. The report has them. Without the option there are none.
grep -q noise said && fail "noise without --noise"
grep -q noise plain.json && fail "noise in a report without --noise"
trains 32 2 --activations sample=0.3 --noise 2 --report noisy.json
[ "$(grep -c '^noise of sampled gradients' said)" = 2 ] || fail "no two tables"
[ "$(grep -c '^  layer 1 attended ' said)" = 2 ] || fail "no row of an input"
results noisy.json > of_noisy
cmp of_plain of_noisy || fail "the measurement of noise changes bits"
[ "$(grep -c '"step": [24], "inputs": \[{"name": "layer 0 attended", "ratio": 0\.3, .*"steps": 2, "noise": [0-9]' noisy.json)" = 2 ] ||
  fail "no tables in the report: $(cat noisy.json)"
trains 32 2 --activations sample=1 --noise 4
[ "$(grep -c '^  layer [01] attended .* 0 B  *0 ' said)" = 2 ] || fail "noise where all rows are kept"

if [ $# -gt 0 ]; then
  "$@" noise noisy.json noise.svg > said 2>&1 || grep -q 'drawing needs matplotlib' said || fail "no picture of tables"
  ! "$@" noise plain.json noise.svg > said 2>&1 || fail "a picture of no tables"
  grep -q 'is no report with tables of noise' said || fail "no sentence on a report without tables"
fi

# A resumed training has the ratios that it began with.
trains 32 2 --activations sample=first.txt --checkpoint saved --every 2
trains 32 2 --activations sample=first.txt --resume saved
refused 'takes up a training that keeps 0\.[0-9]* of the rows of "layer 0 attended", and here it is 0\.3 ' 32 2 --activations sample=0.3 --resume saved

# Mistakes.
refused 'has ratios of another model: its width are 32, and here they are 64' 64 2 --activations sample=first.txt
refused 'its layers are 2, and here they are 1' 32 1 --activations sample=first.txt
sed 's/layer 1/layer 7/' first.txt > other.txt
refused 'has no ratio of "layer 1 attended"' 32 2 --activations sample=other.txt
{ sed '$d' first.txt && sed -n '3s/layer 0/layer 2/p' first.txt && echo end; } > more.txt
refused 'has a ratio of "layer 2 attended", which is no input' 32 2 --activations sample=more.txt
head -n 2 first.txt > broken.txt
refused 'sample=broken.txt is broken: .*line 3' 32 2 --activations sample=broken.txt
sed 's/ratio 0/ratio 7/' first.txt > broken.txt
refused 'line 3 .* above 0 and at most 1' 32 2 --activations sample=broken.txt
sed 's/layer 1/layer 0/' first.txt > broken.txt
refused 'line 4 .*of this name was there before' 32 2 --activations sample=broken.txt
refused '3072 B are needed' 32 2 --activations sample=auto --sample-room 1KiB
refused 'cannot be written' 32 2 --activations sample=auto --sample-file nowhere/ratios.txt
[ ! -e sample_ratios.txt ] || fail "a refused measurement left a file"
echo "sampling: measured, used, resumed and refused"
