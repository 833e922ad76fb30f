#!/bin/sh
# The script that draws a timeline: it compiles, it sums and refuses as it says, and where matplotlib is it draws.
# It reads what max_model writes.
#   sh picture.sh <python3> <plot_timeline.py> <folder to write to> <max_model> <file of a machine>
python="$1"
script="$2"
folder="$3/picture"
program="$4"
machine="$5"
rm -rf "$folder" && mkdir -p "$folder" && cp "$script" "$folder/plot_timeline.py" || exit 1
cd "$folder" || exit 1
"$python" -m py_compile plot_timeline.py || exit 1

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
END
"$python" - <<'END' || exit 1
import plot_timeline as script

levels, works = script.read_spans("good.csv")
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
END

"$python" plot_timeline.py no-such.csv it.png 2>error
if [ $? -ne 2 ] || ! grep -q '^plot_timeline: no-such.csv cannot be read' error; then
  echo "a file that is not there is not refused"
  exit 1
fi
"$program" --machine "$machine" --model GPT3_18B --layers 12 --strategies planned --widths 8192 --timeline written.csv >out 2>error || exit 1
"$python" - <<'END' || exit 1
import plot_timeline as script

levels, works = script.read_spans("written.csv")
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
"$python" plot_timeline.py written.csv written.png && [ -s written.png ] && "$python" plot_timeline.py good.csv it.png && [ -s it.png ] && "$python" plot_timeline.py good.csv it.svg && grep -q '<svg' it.svg
