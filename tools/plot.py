#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what a run did: who holds which bytes, what is on the device, when links and compute are busy, and where it stalls.

    python3 tools/plot.py step timeline.csv picture.svg          one simulated iteration, as max_model --timeline writes it
    python3 tools/plot.py trace trace.json picture.svg           a real run, as gpt --trace and trace::chrome_sink write it
    python3 tools/plot.py policies moved.csv picture.svg [name]  what evictions move, beside the least that any way of moving could;
                                                                 of the models whose name has this in it
    python3 tools/plot.py noise report.json picture.svg          sampled inputs: the tables of gpt --noise, from its --report

A timeline has a line of names, then one line for each span:

    kind,track,begin_seconds,end_seconds,bytes

kind is `level` (a track holds so many bytes from begin to end), `work` (an agent is busy from begin to end; bytes are
what it moves, 0 where it moves none), `chunk` (the chunk with this number is on the device) or `phase` (such as forward, in
the head line of the picture). Tracks of levels are named
<tier>/<what>, such as device/activations; the track <tier>/capacity is drawn as a line, the others are stacked in the order in which
they first appear. Work is a row for each track, as high as the share of its time that it is busy; its name says the share of the
whole iteration. Stalls are the time in which the track `compute` does nothing.

A table of moved bytes has columns model, frames (of the device), bound and one for each policy, in frames of a step.

The same input gives the same bytes of SVG on every run of one version. Wants matplotlib (Debian: python3-matplotlib); tried with 3.11.
"""

import csv
import json
import math
import sys

COLUMNS = ["kind", "track", "begin_seconds", "end_seconds", "bytes"]
COLOURS = ["C0", "C1", "C2", "C4", "C5", "C6"]  # of rows of work; stalls are red
PHASES = {"forward": "#cfe3f5", "backward": "#f9dcc4", "update": "#d5ecd4"}  # others are grey
NAMED = 24  # chunks, at most, of which each has its name at the axis
PARTS = 800  # of an iteration, in the rows of work: shorter work shows as a lower bar


MOST = 2**63  # a number of a file is below this
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)  # exceptions of reading a foreign JSON file


class Mistake(Exception):
    """One sentence about a file that is not what it should be."""


def number_in(value, most=MOST):
    """A number of a JSON file: at least 0 and below `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("text where a number should be")
    if not 0 <= value < most:
        raise ValueError("a number is negative, infinite or far too large")
    return value


def text_in(value):
    if not isinstance(value, str):
        raise ValueError("a name is no text")
    return value


def plain(name):
    """A name in a picture is no formula, whatever is in it."""
    return name.replace("$", r"\$")


def read_spans(path):
    """The spans of a file: (levels, works, chunks, phases), each {track: [(begin, end, bytes), ...]} in the order of the file."""
    spans = {"level": {}, "work": {}, "chunk": {}, "phase": {}}
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
    return spans["level"], spans["work"], spans["chunk"], spans["phase"]


def read_row(path, line, row, spans):
    if None in row or None in row.values() or row["kind"] not in spans:
        raise Mistake(f"{path}, line {line}: not a level, work, chunk or phase with a track and three numbers")
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
        axes.fill_between(times, lower + lower[-1:], upper + upper[-1:], step="post", linewidth=0, label=plain(track.split("/", 1)[1]), rasterized=True)
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


def draw_works(axes, works, begin, end):
    """A row for each track, and one for the time in which compute does nothing."""
    times = [begin + (end - begin) * part / PARTS for part in range(PARTS + 1)]
    rows = [(track, busy_shares(spans, begin, end, PARTS), busy_share(spans, begin, end), COLOURS[line % len(COLOURS)])
            for line, (track, spans) in enumerate(works.items())]
    if "compute" in works:
        idle = [1 - share for share in busy_shares(works["compute"], begin, end, PARTS)]
        rows.insert(1, ("stalls of compute", idle, 1 - busy_share(works["compute"], begin, end), "tab:red"))
    names = []
    for line, (track, shares, whole, colour) in enumerate(rows):
        foot = len(rows) - 1 - line  # the first track is the highest one
        axes.fill_between(times, foot, [foot + 0.8 * share for share in shares + shares[-1:]], step="post", linewidth=0, color=colour, rasterized=True)
        axes.axhline(foot, color="0.8", linewidth=0.6, zorder=0)
        names.append(f"{plain(track)} ({100 * whole:.{0 if 0.1 <= whole <= 0.99 else 1}f} %)")
    axes.set_yticks([len(rows) - 1 - line + 0.4 for line in range(len(names))])
    axes.set_yticklabels(names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.1, len(rows))
    axes.set_title(f"height: the share of each {1e3 * (end - begin) / PARTS:.3g} ms in which it works", loc="right", fontsize="medium")


def draw_phases(axes, phases, begin, end):
    """A bar with the name of each phase, where there is room for its name; the lines between phases go through all panels."""
    for name, spans in phases.items():
        for start, stop, _ in spans:
            axes.axvspan(start, stop, color=PHASES.get(name, "0.9"), linewidth=0)
            if stop - start > 0.06 * (end - begin):
                axes.text((start + stop) / 2, 0.5, plain(name), ha="center", va="center")
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    for edge in axes.spines.values():
        edge.set_visible(False)
    axes.tick_params(axis="x", length=0, labelbottom=False)


def mark_phases(all_axes, phases):
    edges = {span[0] for spans in phases.values() for span in spans} | {span[1] for spans in phases.values() for span in spans}
    for axes in all_axes:
        for edge in sorted(edges):
            axes.axvline(edge, color="0.4", linewidth=0.6, linestyle=":", zorder=3)


def name_chunks(axes, order, names):
    """A name for each line where there are few; else numbers of lines, whole ones."""
    from matplotlib.ticker import MaxNLocator

    if names and len(order) <= NAMED:
        labels = [names.get(chunk, f"chunk {chunk}") for chunk in order]
        axes.set_yticks([at + 0.5 for at in range(len(order))])
        axes.set_yticklabels([plain(label if len(label) <= 34 else label[:31] + "...") for label in labels], fontsize="x-small")
        axes.tick_params(axis="y", length=0)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def draw_residency(axes, chunks, begin, end, names=None, what="chunks that moved"):
    """A line of pixels for each chunk, dark where it is on the device; those that come first are at the top."""
    width = (end - begin) / PARTS if end > begin else 1.0
    lines, order = [], []
    for chunk, spans in sorted(chunks.items(), key=lambda it: (min(span[0] for span in it[1]), int(it[0]))):
        order.append(chunk)
        line = [0.0] * PARTS
        for start, stop, _ in spans:
            first, last = (min(PARTS - 1, max(0, int((time - begin) / width))) for time in (start, stop))
            line[first:last + 1] = [1.0] * (last + 1 - first)
        lines.append(line)
    axes.imshow(lines, aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=1.4,
                extent=(begin, end, len(lines), 0))
    axes.set_ylabel("chunks")
    name_chunks(axes, order, names)
    axes.set_title(f"on the device: each of the {len(lines)} {what}", loc="right", fontsize="medium")


def new_figure(panels, heights=None):
    """A figure whose SVG has nothing in it that changes from run to run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    matplotlib.rcParams["svg.hashsalt"] = "chunkmem"
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["path.simplify_threshold"] = 0.5
    return plot.subplots(panels, 1, squeeze=False, figsize=(12, 2.6 * panels if heights is None else sum(heights)), constrained_layout=True,
                         gridspec_kw=None if heights is None else {"height_ratios": heights})


def write(figure, target):
    figure.savefig(target, dpi=150, metadata={"Date": None} if str(target).endswith(".svg") else None)


def draw_step(levels, works, chunks, phases, target):
    tiers = {}
    for track, spans in levels.items():
        tiers.setdefault(track.split("/", 1)[0], {})[track] = spans
    every = [span for tracks in (levels, works, chunks) for spans in tracks.values() for span in spans]
    begin, end = min(span[0] for span in every), max(span[1] for span in every)
    panels = len(tiers) + bool(chunks) + bool(works)
    figure, all_axes = new_figure(panels + bool(phases), ([0.4] if phases else []) + [2.6] * panels)
    left = list(all_axes[:, 0])
    if phases:
        draw_phases(left.pop(0), phases, begin, end)
        mark_phases(left, phases)
    for at, (tier, its_levels) in enumerate(tiers.items()):
        draw_levels(left.pop(0), tier, its_levels)
        if at == 0 and chunks:
            draw_residency(left.pop(0), chunks, begin, end)
    if works:
        draw_works(left.pop(0), works, begin, end)
    for axes in all_axes[:, 0]:
        axes.set_xlim(begin, end if end > begin else begin + 1)
    all_axes[-1, 0].set_xlabel("time of one iteration [s]")
    write(figure, target)


def read_trace(path):
    """The events of a Chrome trace that say what moved: (name, begin, chunk, bytes), times in seconds from the first one; and what
    it was described with: {device_capacity, frame, chunks}, where it was."""
    try:
        with open(path, encoding="utf-8") as file:
            read = json.load(file)
        events = read["traceEvents"]
        about = read.get("otherData", {})
        about = {"device_capacity": int(number_in(about.get("device_capacity", 0))), "frame": int(number_in(about.get("frame", 0))),
                 "chunks": {chunk: text_in(name) for chunk, name in dict(about.get("chunks", {})).items()}}
        found = [(text_in(it["name"]), number_in(it["ts"]) * 1e-6, it["args"].get("chunk"), number_in(it["args"].get("bytes", 0))) for it in events
                 if it["ph"] in "Xi" and "args" in it]
        for _, _, chunk, _ in found:
            if chunk is not None:
                number_in(int(chunk) if isinstance(chunk, str) else chunk)
    except BROKEN as failure:
        raise Mistake(f"{path} is no trace of chunkmem: {failure}") from failure
    if not found:
        raise Mistake(f"{path} has no events")
    first = min(it[1] for it in found)
    return sorted(((name, time - first, chunk, size) for name, time, chunk, size in found), key=lambda it: it[1]), about


def follow(events, frame=0):
    """What a trace says of each moment: (levels, chunks, phases, ends of iterations, the most that was held at once).

    @param frame   of the device: a chunk takes whole ones, as in a report; 0: bytes as they are"""
    leased = held = most = 0
    since, levels, chunks, ends, marks = {}, {"chunks": [(0.0, 0)], "leases": [(0.0, 0)]}, {}, [], []
    for name, time, chunk, size in events:
        if name in ("lease", "lease_end"):
            leased = max(0, leased + (size if name == "lease" else -size))
            levels["leases"].append((time, leased))
        elif name in ("load", "claim") and chunk not in since:
            since[chunk] = (time, math.ceil(size / frame) * frame if frame else size)
            held += since[chunk][1]
        elif name in ("evict", "discard") and chunk in since:
            begin, its_size = since.pop(chunk)
            held -= its_size
            chunks.setdefault(str(chunk), []).append((begin, time, its_size))
        elif name == "iteration":
            ends.append(time)
        if name in ("forward", "backward", "update", "iteration"):
            marks.append((time, name))
        levels["chunks"].append((time, held))
        most = max(most, held + leased)
    last = events[-1][1]
    for chunk, (begin, size) in since.items():
        chunks.setdefault(str(chunk), []).append((begin, last, size))
    phases = {}
    for (begin, name), (end, _) in zip(marks, marks[1:] + [(last, "")]):
        if name != "iteration" and end > begin:
            phases.setdefault(name, []).append((begin, end, 0))
    return levels, chunks, phases, ends, most


def at_each(steps, times):
    """The value of a step function at each of these times, the last one where several have one time."""
    values, at = [], 0
    for time in times:
        while at + 1 < len(steps) and steps[at + 1][0] <= time:
            at += 1
        values.append(steps[at][1])
    return values


def draw_trace(events, about, target):
    levels, chunks, phases, ends, most = follow(events, about["frame"])
    last = max(events[-1][1], 1e-9)
    named = len(chunks) if about["chunks"] and len(chunks) <= NAMED else 0
    heights = ([0.4] if phases else []) + [2.6, max(2.6, 0.2 * named), 2.6]
    figure, all_axes = new_figure(len(heights), heights)
    left = list(all_axes[:, 0])
    if phases:
        draw_phases(left.pop(0), phases, 0.0, last)
        mark_phases(left, phases)
    tide, residency, links = left
    times = sorted({time for steps in levels.values() for time, _ in steps} | {last})
    lower = [0.0] * len(times)
    for track, steps in levels.items():
        upper = [low + size / 1e6 for low, size in zip(lower, at_each(steps, times))]
        tide.fill_between(times, lower, upper, step="post", linewidth=0, label=track)
        lower = upper
    told = f"at most {most / 1e6:.4g} MB"
    top = most / 1e6
    if about["device_capacity"]:
        capacity = about["device_capacity"] / 1e6
        tide.axhline(capacity, color="black", linewidth=1, linestyle="--", label="capacity")
        told += f" of {capacity:.4g} MB"
        top = max(top, capacity)
    tide.set_ylim(0, 1.05 * top if top > 0 else 1)
    tide.set_ylabel("device [MB]")
    tide.set_title(told, loc="right", fontsize="medium")
    tide.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=3, fontsize="medium", frameon=False, borderaxespad=0.2)
    if chunks:
        draw_residency(residency, chunks, 0.0, last, about["chunks"], "chunks that were there")
    for what, sign in (("load", 1), ("write_back", -1)):
        moved = [0.0] * (PARTS // 4)
        for name, time, _, size in events:
            if name == what:
                moved[min(len(moved) - 1, int(time / last * len(moved)))] += sign * size / 1e6
        total = sum(size for name, _, _, size in events if name == what) / 1e6
        links.bar([last * (at + 0.5) / len(moved) for at in range(len(moved))], moved, width=last / len(moved),
                  label=f"{'loads' if sign > 0 else 'write-backs'} ({total:.1f} MB)")
    links.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    links.set_ylabel("requested from the links [MB]")
    links.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=2, fontsize="medium", frameon=False, borderaxespad=0.2)
    links.set_xlabel("time since the first event [s]; black lines end iterations; a copy counts at its request")
    for axes in all_axes[:, 0]:
        axes.set_xlim(0, last)
    for axes in left:
        for end in ends:
            axes.axvline(end, color="black", linewidth=0.6, zorder=3)
    write(figure, target)


def read_policies(path, wanted):
    """{model: (frames, {policy: moved}, bound)} of a table, of the models that have `wanted` in their names."""
    models = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames is None or rows.fieldnames[:3] != ["model", "frames", "bound"] or len(rows.fieldnames) < 4:
                raise Mistake(f"{path}: the first line is not model,frames,bound and policies")
            for row in rows:
                if None in row or None in row.values():
                    raise Mistake(f"{path}, line {rows.line_num}: too many values or too few")
                if wanted not in row["model"]:
                    continue
                frames, bound, moved = models.setdefault(row["model"], ([], [], {}))
                frames.append(float(row["frames"]))
                bound.append(float(row["bound"]))
                for policy in rows.fieldnames[3:]:
                    moved.setdefault(policy, []).append(float(row[policy]))
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as failure:
        raise Mistake(f"{path} cannot be read: {failure}") from failure
    if not models:
        raise Mistake(f"{path} has no model with '{wanted}' in its name")
    return models


def draw_policies(models, target):
    figure, all_axes = new_figure(len(models), [4.0] * len(models))
    from matplotlib.ticker import MaxNLocator

    for axes, (model, (frames, bound, moved)) in zip(all_axes[:, 0], models.items()):
        for number, (policy, values) in enumerate(moved.items()):
            axes.plot(frames, values, marker="os^Dv*"[number % 6], markersize=5 if policy == "planned" else 4, label=plain(policy),
                      linewidth=2 if policy == "planned" else 1.3, linestyle="--" if policy == "planned" else "-")
        axes.plot(frames, bound, color="black", linewidth=3, label="lower bound for any policy", zorder=1.5)
        axes.fill_between(frames, 0, bound, color="0.9")
        axes.set_ylim(bottom=0)
        axes.set_xlim(min(frames), max(frames))
        axes.set_title(plain(model), loc="left", fontsize="medium")
        axes.set_ylabel("frames moved in a step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    all_axes[-1, 0].set_xlabel("capacity of the device [frames]")
    write(figure, target)


def read_noise(path):
    """The tables of noise of a report: [(step, {input: its numbers}), ...] by step."""
    wanted = ("exact_bytes", "kept_bytes", "steps", "spent_seconds", "product_seconds")
    try:
        with open(path, encoding="utf-8") as file:
            read = json.load(file)
        tables = [(int(number_in(it["step"])), {text_in(one["name"]): {**{key: float(number_in(one[key])) for key in wanted},
                                                                       "noise": math.nan if one["noise"] is None else float(number_in(one["noise"], 1e300))}
                                                for one in it["inputs"]}) for it in read["noise"]]
        if any(len(it["inputs"]) != len(inputs) for it, (_, inputs) in zip(read["noise"], tables)):
            raise ValueError("two inputs of a table have one name")
    except BROKEN as failure:
        raise Mistake(f"{path} is no report with tables of noise (gpt --activations sample=0.3 --noise 10 --report {path}): {failure}") from failure
    if not tables or not tables[0][1]:
        raise Mistake(f"{path} has no table of noise (train as many steps as --noise says)")
    if any(inputs.keys() != tables[0][1].keys() for _, inputs in tables):
        raise Mistake(f"{path}: tables of one report have other inputs")
    return sorted(tables, key=lambda it: it[0])


def draw_noise(tables, target):
    names = list(tables[0][1])
    steps = [step for step, _ in tables]
    figure, all_axes = new_figure(3, [3.4, 2.8, 2.6])
    from matplotlib.ticker import MaxNLocator

    noise, sizes, times = all_axes[:, 0]
    for axes in (noise, times):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for number, name in enumerate(names):
        noise.plot(steps, [inputs[name]["noise"] for _, inputs in tables], marker="o", markersize=3, linewidth=1.2, label=plain(name),
                   color=f"C{number % 10}", linestyle=("-", "--", ":", "-.")[number // 10 % 4])
    shown = [inputs[name]["noise"] for _, inputs in tables for name in names if inputs[name]["noise"] > 0]
    if shown:
        noise.set_yscale("log")
        noise.axhline(1, color="black", linewidth=0.8, linestyle="--")
    noise.set_ylabel("noise to signal")
    noise.set_title("|error of the gradient|\u00b2 over |gradient|\u00b2, means of the steps before; dashed: as much noise as signal",
                    loc="left", fontsize="medium")
    if len(names) <= NAMED:
        noise.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    last = tables[-1][1]
    places = range(len(names))
    sizes.bar([at - 0.2 for at in places], [last[name]["exact_bytes"] / 1e6 for name in names], width=0.4, color="0.75", label="all rows")
    sizes.bar([at + 0.2 for at in places], [last[name]["kept_bytes"] / 1e6 for name in names], width=0.4, color="C0", label="kept")
    sizes.set_xticks(list(places) if len(names) <= NAMED else [])
    if len(names) <= NAMED:
        sizes.set_xticklabels([plain(name) for name in names], rotation=20, ha="right", fontsize="small")
    exact, kept = (sum(last[name][key] for name in names) / 1e6 for key in ("exact_bytes", "kept_bytes"))
    sizes.set_title(f"{kept:.4g} of {exact:.4g} MB kept", loc="right", fontsize="medium")
    sizes.set_ylabel("bytes [MB]")
    sizes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=2, fontsize="medium", frameon=False, borderaxespad=0.2)
    for key, label in (("product_seconds", "products of kept rows"), ("spent_seconds", "sampling: choices, copies, scales, norms")):
        times.plot(steps, [1e3 * sum(it[key] for it in inputs.values()) / max(1.0, max(it["steps"] for it in inputs.values()))
                           for _, inputs in tables], marker="o", markersize=3, label=label)
    times.set_ylim(bottom=0)
    times.set_ylabel("of a step [ms]")
    times.set_xlabel("step")
    times.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=2, fontsize="medium", frameon=False, borderaxespad=0.2)
    write(figure, target)


USES = {
    "step": (3, 3, lambda words: draw_step(*read_spans(words[1]), words[2])),
    "trace": (3, 3, lambda words: draw_trace(*read_trace(words[1]), words[2])),
    "noise": (3, 3, lambda words: draw_noise(read_noise(words[1]), words[2])),
    "policies": (3, 4, lambda words: draw_policies(read_policies(words[1], words[3] if len(words) > 3 else ""), words[2])),
}


def main(arguments):
    least, most, use = USES.get(arguments[0] if arguments else "", (1, 0, None))
    if not least <= len(arguments) <= most:
        raise Mistake("usage: plot.py step <timeline.csv> <picture>, plot.py trace <trace.json> <picture>, plot.py noise <report.json> "
                      "<picture> or plot.py policies <table.csv> <picture> [part of a model's name]; pictures are .svg, .png or .pdf")
    try:
        use(arguments)
    except ImportError as failure:
        raise Mistake(f"drawing needs matplotlib (Debian: apt-get install python3-matplotlib), and this Python has none: {failure}") from failure
    except (OSError, ValueError) as failure:
        raise Mistake(f"{arguments[2]} cannot be written: {failure}") from failure


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Mistake as mistake:
        print(f"plot: {mistake}", file=sys.stderr)
        sys.exit(2)
