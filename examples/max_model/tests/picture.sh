#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the script that draws: it compiles, sums and refuses correctly, and with matplotlib it draws the same bytes each
# time. Its input is the output of max_model, and traces and tables of other programs.
#   sh picture.sh <python3> <plot.py> <folder to write to> <max_model> <file of a machine>
python="$1"
script="$2"
folder="$3/picture"
program="$4"
machine="$5"
rm -rf "$folder" && mkdir -p "$folder" && cp "$script" "$folder/plot.py" || exit 1
cd "$folder" || exit 1
"$python" -m py_compile plot.py || exit 1

cat >good.csv <<'END'
kind,track,begin_seconds,end_seconds,bytes
level,device/capacity,0,4,10e9
level,device/activations,0,1,2e9
level,device/activations,1,3,6e9
level,device/chunks,0,4,3e9
level,host/capacity,0,4,20e9
level,host/chunks,0,4,11e9
work,compute,0,1,0
work,compute,0.5,2,0
work,to_device,1,2,1e9
work,to_host,3,4,1e9
chunk,7,0,1,4e6
chunk,7,2,4,4e6
chunk,12,0.5,3,4e6
phase,forward,0,1.5,0
phase,backward,1.5,4,0
END
cat >good.json <<'END'
{"traceEvents":[{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"loads"}},
{"name":"load","ph":"X","pid":1,"tid":1,"ts":1000000.000,"dur":5.0,"args":{"chunk":3,"bytes":100}},
{"name":"bytes of chunks on device","ph":"C","pid":1,"tid":1,"ts":1000000.000,"args":{"bytes":100}},
{"name":"lease","ph":"i","pid":1,"tid":3,"ts":1500000.000,"s":"t","args":{"bytes":40}},
{"name":"write_back","ph":"i","pid":1,"tid":2,"ts":2000000.000,"s":"t","args":{"chunk":3,"bytes":100}},
{"name":"evict","ph":"i","pid":1,"tid":4,"ts":2000000.000,"s":"t","args":{"chunk":3,"bytes":100}},
{"name":"load","ph":"i","pid":1,"tid":1,"ts":2500000.000,"s":"t","args":{"chunk":4,"bytes":60}},
{"name":"lease_end","ph":"i","pid":1,"tid":3,"ts":2600000.000,"s":"t","args":{"bytes":40}},
{"name":"iteration","ph":"i","pid":1,"tid":4,"ts":3000000.000,"s":"t","args":{"number":1}},
{"name":"forward","ph":"i","pid":1,"tid":4,"ts":3000000.000,"s":"t","args":{"number":0}},
{"name":"claim","ph":"i","pid":1,"tid":4,"ts":3250000.000,"s":"t","args":{"chunk":5,"bytes":129}},
{"name":"backward","ph":"i","pid":1,"tid":4,"ts":3500000.000,"s":"t","args":{"number":0}},
{"name":"update","ph":"i","pid":1,"tid":4,"ts":4000000.000,"s":"t","args":{"bytes":0}},
{"name":"iteration","ph":"i","pid":1,"tid":4,"ts":4500000.000,"s":"t","args":{"number":2}}],
"otherData":{"dropped_events":"0","device_capacity":512,"frame":128,"chunks":{"3":"a (value)","5":"b (value), c (value)"}}}
END
printf 'model,frames,bound,lru,belady\na small one,2,10,14,11\na small one,4,5,inf,5\nanother,2,1,2,1\n' >good_moved.csv
"$python" - <<'END' || exit 1
import plot as script

levels, works, chunks, phases = script.read_spans("good.csv")
assert phases == {"forward": [(0, 1.5, 0)], "backward": [(1.5, 4, 0)]}, phases
assert chunks == {"7": [(0, 1, 4e6), (2, 4, 4e6)], "12": [(0.5, 3, 4e6)]}, chunks
assert list(levels) == ["device/capacity", "device/activations", "device/chunks", "host/capacity", "host/chunks"]
assert works["compute"] == [(0, 1, 0), (0.5, 2, 0)]
values = script.steps_of(levels, [0, 1, 3, 4])
assert values["device/activations"] == [2e9, 6e9, 0], values
assert values["device/chunks"] == [3e9, 3e9, 3e9], values
assert script.busy_share(works["compute"], 0, 4) == 0.5
assert script.busy_share(works["to_host"], 0, 4) == 0.25
assert script.busy_share(works["compute"], 1, 3) == 0.5
assert script.busy_shares(works["compute"], 0, 4, 4) == [1, 1, 0, 0]
assert script.busy_shares(works["to_host"], 0, 4, 8) == [0, 0, 0, 0, 0, 0, 1, 1]
short = [(at / 1000, at / 1000 + 1e-4, 0) for at in range(4000)]  # far less than a pixel each, and a tenth of the time together
assert all(abs(share - 0.1) < 1e-3 for share in script.busy_shares(short, 0, 4, 40)), script.busy_shares(short, 0, 4, 40)
assert script.busy_shares([(2, 2, 0)], 2, 2, 3) == [0, 0, 0]

good = open("good.csv").read()
for number, (old, new) in enumerate([("kind,", "sort,"), ("work,compute", "luck,compute"), (",1e9\n", ",-1\n"), (",3,6e9", ",0.5,6e9"),
                                     (",1e9\n", ",x\n"), (",1e9\n", ",inf\n"), (",1e9\n", "\n")]):
    assert old in good
    open("bad.csv", "w").write(good.replace(old, new, 1))
    try:
        script.read_spans("bad.csv")
    except script.Mistake as mistake:
        assert "bad.csv" in str(mistake)
    else:
        raise AssertionError(f"not refused: {new} for {old}")

events, about = script.read_trace("good.json")
assert about == {"device_capacity": 512, "frame": 128, "chunks": {"3": "a (value)", "5": "b (value), c (value)"}}, about
assert [(it[0], it[1]) for it in events[:7]] == [("load", 0), ("lease", 0.5), ("write_back", 1), ("evict", 1), ("load", 1.5), ("lease_end", 1.6),
                                                 ("iteration", 2)], events
levels, chunks, phases, ends, most = script.follow(events)
assert chunks == {"3": [(0, 1, 100)], "4": [(1.5, 3.5, 60)], "5": [(2.25, 3.5, 129)]}, chunks
assert levels["leases"] == [(0, 0), (0.5, 40), (1.6, 0)], levels
assert (ends, levels["chunks"][-1]) == ([2, 3.5], (3.5, 189))
assert phases == {"forward": [(2, 2.5, 0)], "backward": [(2.5, 3, 0)], "update": [(3, 3.5, 0)]}, phases
assert most == 189, most
whole, _, _, _, most = script.follow(events, 128)  # in frames
assert most == 3 * 128, most
assert script.at_each(whole["chunks"], [0, 1.2, 2.25, 9]) == [128, 0, 3 * 128, 3 * 128], whole
event = '{"traceEvents":[{"ph":"i","args":{"chunk":3,"bytes":%s},"name":%s,"ts":%s}],"otherData":{"frame":%s}}'
open("fair.json", "w").write(event % ("100", '"load"', "2", "128"))
assert script.read_trace("fair.json")[0] == [("load", 0, 3, 100)]
for text in ("", "[]", "{}", '{"traceEvents":[]}', '{"traceEvents":[{"ph":"X"}]}', '{"traceEvents":[{"ph":"i","args":{},"name":"load"}]}', "[" * 100000,
             event % ("1e999", '"load"', "2", "128"), event % ("9" * 400, '"load"', "2", "128"), event % ("-1", '"load"', "2", "128"),
             event % ('"x"', '"load"', "2", "128"), event % ("100", "5", "2", "128"), event % ("100", '"load"', "9" * 400, "128"),
             event % ("100", '"load"', "1e999", "128"), event % ("100", '"load"', "2", "1e999"), event % ("100", '"load"', "2", "-128"),
             (event % ("100", '"load"', "2", "128")).replace('"chunk":3', '"chunk":[]')):
    open("bad.json", "w").write(text)
    try:
        script.read_trace("bad.json")
    except script.Mistake as mistake:
        assert "bad.json" in str(mistake)
    else:
        raise AssertionError(f"not refused: {text}")

models = script.read_policies("good_moved.csv", "")
assert list(models) == ["a small one", "another"]
assert models["a small one"] == ([2, 4], [10, 5], {"lru": [14, float("inf")], "belady": [11, 5]}), models
assert list(script.read_policies("good_moved.csv", "small")) == ["a small one"]
for text, wanted in (("model,frames,bound\n", ""), ("model,frames,bound,lru\nx,1,2\n", ""), ("model,frames,bound,lru\nx,1,2,y\n", ""),
                     ("model,frames,bound,lru\nx,1,2,3\n", "z")):
    open("bad.csv", "w").write(text)
    try:
        script.read_policies("bad.csv", wanted)
    except script.Mistake as mistake:
        assert "bad.csv" in str(mistake)
    else:
        raise AssertionError(f"not refused: {text}")
END

for use in step trace policies; do
  "$python" plot.py $use no-such.csv it.png 2>error
  if [ $? -ne 2 ] || ! grep -q '^plot: no-such.csv ' error; then
    echo "a file that is not there is not refused"
    exit 1
  fi
done
"$python" plot.py step good.csv 2>error
if [ $? -ne 2 ] || ! grep -q '^plot: usage: plot.py step' error; then
  echo "a word too few is not refused"
  exit 1
fi
"$program" --machine "$machine" --model GPT3_18B --layers 12 --strategies planned --widths 8192 --timeline written.csv >out 2>error || exit 1
"$python" - <<'END' || exit 1
import plot as script

levels, works, chunks, phases = script.read_spans("written.csv")
assert list(phases)[:2] == ["forward", "backward"], phases
assert phases["forward"][0][1] == phases["backward"][0][0], phases
assert chunks, "no chunk moved"
for spans in chunks.values():  # one after the other
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:])), spans
assert {"compute", "ranks", "to device", "to host", "host updates"} >= set(works), works.keys()
for tier in ("device", "host"):
    capacity = levels[f"{tier}/capacity"][0][2]
    held = [track for track in levels if track.startswith(tier) and not track.endswith("capacity")]
    times = sorted({span[0] for track in held for span in levels[track]})
    values = script.steps_of({track: levels[track] for track in held}, times + [times[-1] + 1])
    most = max(sum(values[track][at] for track in held) for at in range(len(times) - 1))
    assert 0 < most <= capacity, (tier, most, capacity)
assert 0.5 < script.busy_share(works["compute"], 0, levels["host/capacity"][0][1]) <= 1
END
if ! "$python" -c 'import matplotlib' 2>/dev/null; then
  echo "SKIPPED: no matplotlib was found (Debian: apt-get install python3-matplotlib): the script was read, and nothing drawn"
  exit 4
fi
draw() { "$python" plot.py "$@" || exit 1; }
draw step written.csv written.png
draw step written.csv written.svg
draw step written.csv again.svg
draw trace good.json trace.svg
draw policies good_moved.csv moved.svg small
cmp written.svg again.svg || exit 1
grep -q 'b (value), c (value)' trace.svg && grep -q 'at most 0.000384 MB of 0.000512 MB' trace.svg && grep -q 'backward' trace.svg || { echo "trace.svg lacks names"; exit 1; }
for picture in written trace moved; do
  grep -q '<svg' $picture.svg || { echo "$picture.svg is no picture"; exit 1; }
done
grep -q 'stalls of compute' written.svg && [ -s written.png ]
