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
# The part of a report that depends only on the training.
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
  # A forged report is refused in one sentence.
  digits=$(printf '%0400d' 0 | tr 0 9)
  for change in 's/"step": 2/"step": 1e999/' "s/\"step\": 2/\"step\": $digits/" "s/\"exact_bytes\": 8192/\"exact_bytes\": $digits/" \
    's/"exact_bytes": 8192/"exact_bytes": -8192/' 's/"kept_bytes": [0-9]*/"kept_bytes": 1e999/' 's/"noise": [0-9]/"noise": -1/' \
    's/"name": "layer 0 attended"/"name": 5/' 's/layer 1/layer 0/' 's/"noise": \[/"noise": [['"$(printf '%09999d' 0 | tr 0 '[')"/; do
    sed "$change" noisy.json > foreign.json
    ! cmp -s foreign.json noisy.json || fail "nothing is changed by $(echo "$change" | cut -c 1-60)"
    ! "$@" noise foreign.json noise.svg > said 2>&1 || fail "drawn: $(echo "$change" | cut -c 1-60)"
    grep -q '^plot: foreign.json is no report with tables of noise' said || fail "no sentence: $(echo "$change" | cut -c 1-60)"
    [ "$(wc -l < said)" = 1 ] || fail "more than a sentence"
  done
  sed 's/layer 0/$x_{$/' noisy.json > foreign.json
  "$@" noise foreign.json noise.svg > said 2>&1 || grep -q 'drawing needs matplotlib' said || fail "no picture of an input with a dollar"
fi

# A resumed training keeps the ratios that it began with.
trains 32 2 --activations sample=first.txt --checkpoint saved --every 2
trains 32 2 --activations sample=first.txt --resume saved
refused 'continues a training that keeps 0\.[0-9]* of the rows of "layer 0 attended", and here it is 0\.3 ' 32 2 --activations sample=0.3 --resume saved

# A refused run leaves the ratios that the checkpoint needs, and so does a run with one file for two options.
cp first.txt kept.txt
refused 'continues a training that keeps' 32 2 --activations sample=auto --sample-room 60% --sample-file kept.txt --resume saved
cmp first.txt kept.txt || fail "a refused run replaced the ratios"
for option in --report --trace --export-weights; do
  refused "'kept.txt' is also the file of $option" 32 2 --activations sample=auto --sample-file kept.txt "$option" ./kept.txt
done
cmp first.txt kept.txt || fail "a refused run replaced the ratios"
refused "'fresh.txt' is also the file of --report" 32 2 --activations sample=auto --sample-file fresh.txt --report ./fresh.txt
[ ! -e fresh.txt ] || fail "a refused run made the file of ratios"
refused "sample=kept.txt' is also the file of --report" 32 2 --activations sample=kept.txt --report ./kept.txt
cat first.txt first.txt first.txt first.txt > text.txt
refused "'text.txt' is also the file of --text" 32 2 --activations sample=auto --sample-file text.txt --text ./text.txt
# A checkpoint of exact training, and one of sampled training, each resumed as the other.
trains 32 2 --checkpoint exact --every 2
refused 'without ratios of sampled inputs.*--init exact' 32 2 --activations sample=0.3 --resume exact
refused 'keeps some rows of inputs.*give the --activations sample=.*--init saved' 32 2 --resume saved
refused 'samples other inputs' 32 2 --mlp relu --activations sample=0.3 --resume saved

# Mistakes.
refused 'has ratios of another model or batch: width 32, and here width 64' 64 2 --activations sample=first.txt
refused 'layers 2, and here layers 1' 32 1 --activations sample=first.txt
sed 's/batch 2/batch 3/' first.txt > other.txt
refused 'batch 3, and here batch 2' 32 2 --activations sample=other.txt
for change in 's/kept [0-9]*/kept 7/' 's/exact 8192/exact 8193/'; do
  sed "$change" first.txt > other.txt
  refused 'says that "layer 0 attended" takes .* B of .* rows, and here it takes' 32 2 --activations sample=other.txt
done
for noise in nan inf -1; do
  sed "s/noise [0-9.e-]*/noise $noise/" first.txt > broken.txt
  refused 'line 3 .*a noise is at least 0 and finite' 32 2 --activations sample=broken.txt
done
{ cat first.txt && echo; } > broken.txt
refused 'line 5 .*more lines follow' 32 2 --activations sample=broken.txt
sed 's/$/\r/' first.txt > broken.txt
refused 'line 1 .*lines end in CR LF' 32 2 --activations sample=broken.txt
sed 's/layer 1/layer 7/' first.txt > other.txt
refused 'has no ratio of "layer 1 attended"' 32 2 --activations sample=other.txt
{ sed '$d' first.txt && sed -n '3s/layer 0/layer 2/p' first.txt && echo end; } > more.txt
refused 'has a ratio of "layer 2 attended", which is no input' 32 2 --activations sample=more.txt
head -n 2 first.txt > broken.txt
refused 'sample=broken.txt is broken: .*line 3' 32 2 --activations sample=broken.txt
sed 's/ratio 0/ratio 7/' first.txt > broken.txt
refused 'line 3 .* above 0 and at most 1' 32 2 --activations sample=broken.txt
sed 's/layer 1/layer 0/' first.txt > broken.txt
refused 'line 4 .*of this name is repeated' 32 2 --activations sample=broken.txt
# A row with its index and scale takes more than 16 rows here: the message names bytes, and no percentage above 100.
status=0
"$gpt" --heads 2 --context 16 --batch 2 --sample 0 --threads 1 --steps 4 --width 8 --layers 2 --activations sample=auto --sample-room 1KiB > said 2>&1 || status=$?
{ [ "$status" = 2 ] && grep -q '3072 B are needed for a 32nd of each (give that much)' said; } || fail "a share above all rows is asked for"
refused '3072 B are needed.*give that much, which is 19%' 32 2 --activations sample=auto --sample-room 1KiB
refused 'cannot be written' 32 2 --activations sample=auto --sample-file nowhere/ratios.txt
[ ! -e sample_ratios.txt ] || fail "a refused measurement left a file"
echo "sampling: measured, used, resumed and refused"
