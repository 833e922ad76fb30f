#!/usr/bin/env python3
"""Draws one training iteration: who holds which bytes, and when compute, links and host work.

    python3 tools/plot_timeline.py timeline.csv picture.png

The file has a line of names, then one line for each span:

    kind,track,begin_seconds,end_seconds,bytes

kind is `level` (a track holds so many bytes from begin to end) or `work` (an agent is busy from begin to end; bytes are
what it moves, 0 where it moves none). Tracks of levels are named <tier>/<what>, such as device/activations; the track
<tier>/capacity is drawn as a line, the others are stacked in the order in which they first appear. Work is a row for each track, as
high as the share of its time that it is busy; its name says the share of the whole iteration. The example max_model
writes such a file with --timeline. Wants matplotlib (Debian: python3-matplotlib); tried with 3.6.
"""

import csv
import sys

COLUMNS = ["kind", "track", "begin_seconds", "end_seconds", "bytes"]
PARTS = 800  # of an iteration, in the rows of work: what is shorter shows as a lower bar


class Mistake(Exception):
    """One sentence about a file that is not what it should be."""


def read_spans(path):
    """The spans of a file: (levels, works), each {track: [(begin, end, bytes), ...]} in the order of the file."""
    spans = {"level": {}, "work": {}}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames != COLUMNS:
                raise Mistake(f"{path}: the first line is not {','.join(COLUMNS)}")
            for row in rows:
                read_row(path, rows.line_num, row, spans)
    except (OSError, UnicodeDecodeError, csv.Error) as failure:
        raise Mistake(f"{path} cannot be read: {failure}") from failure
    if not spans["level"] and not spans["work"]:
        raise Mistake(f"{path} has no spans")
    return spans["level"], spans["work"]


def read_row(path, line, row, spans):
    if None in row or None in row.values() or row["kind"] not in spans:
        raise Mistake(f"{path}, line {line}: not a level or work with a track and three numbers")
    try:
        begin, end, size = (float(row[name]) for name in COLUMNS[2:])
    except ValueError as failure:
        raise Mistake(f"{path}, line {line}: {failure}") from failure
    if not 0 <= begin <= end < float("inf") or not 0 <= size < float("inf"):
        raise Mistake(f"{path}, line {line}: a span ends before it begins, or a number is negative or none")
    spans[row["kind"]].setdefault(row["track"], []).append((begin, end, size))


def steps_of(levels, times):
    """Each track's bytes from times[i] to times[i + 1]."""
    values = {}
    for track, spans in levels.items():
        waiting = sorted(spans)
        held = []
        at = 0
        for time in times[:-1]:
            while at < len(waiting) and waiting[at][0] <= time:
                at += 1
            held.append(waiting[at - 1][2] if at > 0 and waiting[at - 1][1] > time else 0.0)
        values[track] = held
    return values


def joined(spans):
    """The times in which a track works, by begin; spans of one track may touch and overlap."""
    times = []
    for begin, end, _ in sorted(spans):
        if times and begin <= times[-1][1]:
            times[-1][1] = max(times[-1][1], end)
        else:
            times.append([begin, end])
    return times


def busy_share(spans, begin, end):
    """Part of the time in which a track works."""
    busy = sum(max(0.0, min(stop, end) - max(start, begin)) for start, stop in joined(spans))
    return busy / (end - begin) if end > begin else 0.0


def busy_shares(spans, begin, end, parts):
    """The same of each of many equal parts of the time, so that spans much shorter than a pixel are not lost."""
    if end <= begin:
        return [0.0] * parts
    width = (end - begin) / parts
    shares = [0.0] * parts
    for start, stop in joined(spans):
        first = min(parts - 1, int((start - begin) / width))
        last = min(parts - 1, int((stop - begin) / width))
        for part in range(first, last + 1):
            low, high = begin + part * width, begin + (part + 1) * width
            shares[part] += max(0.0, min(stop, high) - max(start, low)) / width
    return [min(1.0, share) for share in shares]


def draw_levels(axes, tier, levels):
    times = sorted({time for spans in levels.values() for begin, end, _ in spans for time in (begin, end)})
    values = steps_of(levels, times)
    stacked = [track for track in levels if not track.endswith("/capacity")]
    lower = [0.0] * (len(times) - 1)
    for track in stacked:
        upper = [low + value / 1e9 for low, value in zip(lower, values[track])]
        axes.fill_between(times, lower + lower[-1:], upper + upper[-1:], step="post", linewidth=0, label=track.split("/", 1)[1])
        lower = upper
    most = max(lower, default=0.0)
    top = most
    told = f"at most {most:.2f} GB"
    for track in levels:
        if track.endswith("/capacity"):
            capacity = levels[track][0][2] / 1e9
            axes.axhline(capacity, color="black", linewidth=1, linestyle="--", label="capacity")
            top = max(top, capacity)
            told += f" of {capacity:.2f} GB"
    axes.set_ylim(0, 1.05 * top if top > 0 else 1)
    axes.set_ylabel(f"{tier} [GB]")
    axes.set_title(told, loc="right", fontsize="medium")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=4, fontsize="medium", frameon=False, borderaxespad=0.2)


def draw_works(axes, works):
    begin = min(start for spans in works.values() for start, _, _ in spans)
    end = max(stop for spans in works.values() for _, stop, _ in spans)
    times = [begin + (end - begin) * part / PARTS for part in range(PARTS + 1)]
    names = []
    for line, (track, spans) in enumerate(works.items()):
        shares = busy_shares(spans, begin, end, PARTS)
        foot = len(works) - 1 - line  # the first track is the highest one
        axes.fill_between(times, foot, [foot + 0.8 * share for share in shares + shares[-1:]], step="post", linewidth=0, color=f"C{line}")
        axes.axhline(foot, color="0.8", linewidth=0.6, zorder=0)
        names.append(f"{track} ({100 * busy_share(spans, begin, end):.0f} %)")
    axes.set_yticks([len(works) - 1 - line + 0.4 for line in range(len(names))])
    axes.set_yticklabels(names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.1, len(works))
    axes.set_xlabel("time of one iteration [s]")
    axes.set_title(f"height: the share of each {1e3 * (end - begin) / PARTS:.3g} ms in which it works", loc="right", fontsize="medium")


def draw(levels, works, target):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    tiers = {}
    for track, spans in levels.items():
        tiers.setdefault(track.split("/", 1)[0], {})[track] = spans
    panels = len(tiers) + (1 if works else 0)
    figure, all_axes = plot.subplots(panels, 1, sharex=True, squeeze=False, figsize=(12, 3 * panels), constrained_layout=True)
    for axes, (tier, its_levels) in zip(all_axes[:, 0], tiers.items()):
        draw_levels(axes, tier, its_levels)
    if works:
        draw_works(all_axes[-1, 0], works)
    every = [span for tracks in (levels, works) for spans in tracks.values() for span in spans]
    begin, end = min(span[0] for span in every), max(span[1] for span in every)
    if end > begin:
        all_axes[-1, 0].set_xlim(begin, end)
    figure.savefig(target, dpi=150)


def main(arguments):
    if len(arguments) != 2:
        raise Mistake("write: plot_timeline.py <timeline.csv> <picture.png, .svg or .pdf>")
    levels, works = read_spans(arguments[0])
    try:
        draw(levels, works, arguments[1])
    except ImportError as failure:
        raise Mistake(f"drawing needs matplotlib, and it was not found ({failure})") from failure
    except (OSError, ValueError) as failure:
        raise Mistake(f"{arguments[1]} cannot be written: {failure}") from failure


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Mistake as mistake:
        print(f"plot_timeline: {mistake}", file=sys.stderr)
        sys.exit(2)
