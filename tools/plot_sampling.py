#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what sampled inputs cost and save, from recorded runs.

    python3 tools/plot_sampling.py memory fine_tuning.csv picture.svg    loss against memory, of what fine_tuning_bench prints
    python3 tools/plot_sampling.py variance variance.csv picture.svg     variance against ratio: sampling_bench variance.csv

The first table has lines run,kind,name,ratio,seed,first loss,last loss,held-out loss,peak bytes,seconds a step, and other lines,
which are passed over. The second has columns distribution,ratio,variance.

The same input gives the same bytes of SVG on every run of one version. Wants matplotlib (Debian: python3-matplotlib).
"""

import csv
import sys

import plot

MARKERS = "os^Dv*"


def lines_of(path):
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise plot.Mistake(f"{path} cannot be read: {failure}") from failure


def read_runs(path):
    """{name: [(peak bytes, last loss), ...]} of the fine-tuned runs, in the order of the file."""
    runs = {}
    for row in csv.reader(line for line in lines_of(path) if line.startswith("run,fine-tuned,")):
        _, _, name, ratio, _, _, last, _, peak, _ = row
        if float(ratio) > 0:
            name = name.replace("sampled", f"sampled {float(ratio):g}")
        runs.setdefault(name, []).append((float(peak), float(last)))
    if not runs:
        raise plot.Mistake(f"{path} has no runs")
    return runs


def draw_memory(runs, target):
    figure, all_axes = plot.new_figure(1, [4.0])
    axes = all_axes[0, 0]
    for number, (name, found) in enumerate(runs.items()):
        peaks = [peak / 2**20 for peak, _ in found]
        losses = [loss for _, loss in found]
        mean = sum(losses) / len(losses)
        axes.errorbar([peaks[0]], [mean], yerr=[[mean - min(losses)], [max(losses) - mean]], marker=MARKERS[number % 6],
                      linestyle="none", capsize=3, label=name)
    axes.set_xlim(left=0)
    axes.set_xlabel("peak of the whole step [MiB]")
    axes.set_ylabel("loss in the last tenth of the steps [nats]\nmean, least and most of the seeds")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    plot.write(figure, target)


def read_variances(path):
    """{distribution: ([ratio], [variance over that of a smaller batch])}, without those that have no variance left."""
    found = {}
    rows = csv.reader(lines_of(path))
    if next(rows, None) != ["distribution", "ratio", "variance"]:
        raise plot.Mistake(f"{path}: the first line is not distribution,ratio,variance")
    for name, ratio, variance in rows:
        if float(variance) <= 0:
            continue
        ratios, values = found.setdefault(name, ([], []))
        ratios.append(float(ratio))
        values.append(float(variance))
    return found


def draw_variances(found, target):
    figure, all_axes = plot.new_figure(1, [4.0])
    axes = all_axes[0, 0]
    for number, (name, (ratios, values)) in enumerate(found.items()):
        axes.plot(ratios, values, marker=MARKERS[number % 6], markersize=4, label=name)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log")
    axes.set_xlim(0, 1)
    axes.set_xlabel("ratio of rows that are kept")
    axes.set_ylabel("variance over that of a smaller batch\nof as many rows")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    plot.write(figure, target)


USES = {
    "memory": lambda words: draw_memory(read_runs(words[1]), words[2]),
    "variance": lambda words: draw_variances(read_variances(words[1]), words[2]),
}


def main(arguments):
    if len(arguments) != 3 or arguments[0] not in USES:
        raise plot.Mistake("usage: plot_sampling.py memory <table> <picture> or plot_sampling.py variance <table> <picture>; pictures are "
                           ".svg, .png or .pdf")
    try:
        USES[arguments[0]](arguments)
    except ImportError as failure:
        raise plot.Mistake(f"drawing needs matplotlib (Debian: apt-get install python3-matplotlib), and this Python has none: "
                           f"{failure}") from failure
    except (OSError, ValueError) as failure:
        raise plot.Mistake(f"{arguments[2]} cannot be written: {failure}") from failure


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except plot.Mistake as mistake:
        print(f"plot_sampling: {mistake}", file=sys.stderr)
        sys.exit(2)
