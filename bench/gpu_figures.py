#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of a campaign of bench/gpu.sh, from what its parts left: python3 bench/gpu_figures.py [--first] OUTDIR

With --first no rates were measured, so T* is not known: the pair of trainings is of some batch, and no bound judges its speed.
A figure whose parts are missing or damaged is not written, a line says why, and the others are made. Which steps count was
decided before any was seen: the second half of a training, since the first steps record, plan, and meet everything for the
first time.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

STEP = re.compile(r"^step (\d+)/(\d+)  loss (\S+)  lr \S+  ([0-9.]+) tokens/s  moved ([0-9.]+) MiB", re.MULTILINE)
HEADER = re.compile(r"^model   (\d+) parameters", re.MULTILINE)


class Missing(Exception):
    """One sentence: what a figure lacks."""


class NoRates(dict):
    """Rates that were not measured: figures that ask for one are missing, the others are made."""

    def __init__(self, why):
        super().__init__()
        self.why = why

    def __missing__(self, name):
        raise Missing(f"{name} is not known: {self.why}")


def read_json(path):
    if not path.exists():
        raise Missing(f"{path.name} is not there")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as why:
        raise Missing(f"{path.name} is damaged: {why}") from why


class Training:
    """What one run of gpt_cuda printed and reported."""

    def __init__(self, out, name):
        text_file = out / f"{name}.txt"
        if not text_file.exists():
            raise Missing(f"{name} did not run")
        text = text_file.read_text(encoding="utf-8", errors="replace")
        steps = STEP.findall(text)
        if not steps or int(steps[-1][0]) != int(steps[-1][1]):
            raise Missing(f"{name} did not finish")
        late = steps[len(steps) // 2:]
        self.tokens_per_second = statistics.median(float(it[3]) for it in late)
        self.moved = statistics.median(float(it[4]) for it in late) * 2**20  # bytes of a step, both directions
        header = HEADER.search(text)
        if header is None:
            raise Missing(f"{name} did not say how many parameters it has")
        self.parameters = int(header.group(1))
        report = read_json(out / f"{name}.json")
        if not report.keys() >= {"losses", "parameter_hash"}:
            raise Missing(f"{name}.json lacks losses or parameter_hash")
        self.losses, self.hash = report["losses"], report["parameter_hash"]

    def seconds(self, tokens):
        return tokens / self.tokens_per_second


def device():
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        answer = "unknown, unknown"
    name, _, driver = answer.splitlines()[0].partition(", ")
    return {"device": name, "driver": driver}


def batches_that_ran(out):
    names = [path.stem for kind in ("capped", "whole") for path in out.glob(f"gpt_{kind}_*.txt")]
    return sorted({int(name.rsplit("_", 1)[1]) for name in names})


def tokens_of_pair(out, batch):
    """A quarter of the model data and updates on the CPU, against all of it on the device and updates there, its fastest form."""
    capped, whole = Training(out, f"gpt_capped_{batch}"), Training(out, f"gpt_whole_{batch}")
    if whole.moved > 0.01 * 16 * whole.parameters:  # 16 bytes for each parameter are its model data
        raise Missing(f"the uncapped training moved {whole.moved / 2**20:.0f} MiB in a step: it is capped itself")
    return capped.tokens_per_second / whole.tokens_per_second


def capped_over_uncapped(out, rates):
    """At T*."""
    return tokens_of_pair(out, rates["batches"][1])


def chunked_over_whole(out, _):
    """At the batch of the first hour, which need not be T*: links and updates may decide it."""
    batches = batches_that_ran(out)
    if not batches:
        raise Missing("no pair of trainings ran")
    return tokens_of_pair(out, batches[-1])


def least_seconds(parameters, rates):
    """The shortest a step may be for a quarter of P parameters' model data, updates on the CPU; see offload-peers 2.4, its first row.

    Every weight was updated on the host, so 2 P bytes go up at least once; they can stay from the forward to the backward pass, since a
    quarter of 16 P bytes holds them twice. Every gradient goes down, 2 P bytes, and the CPU updates P parameters. All three may run at
    once, so the slowest decides, each at its measured rate. What the training itself moved does not enter, nor does its compute.
    """
    return {"to_device": 2 * parameters / rates["to_device"], "to_host": 2 * parameters / rates["to_host"],
            "updates": parameters / rates["updates"]}


def step_over_link_bound(out, rates):
    """Below T*, at half of it, where links and updates decide: the median step of the second half against least_seconds."""
    batch = rates["batches"][0]
    run = Training(out, f"gpt_capped_{batch}")
    least = least_seconds(run.parameters, rates)
    by = max(least, key=least.get)
    step = run.seconds(batch * rates["context"])
    print(f"a step of {step:.3f} s moved {run.moved / 2**30:.2f} GiB; at least {least[by]:.3f} s, which {by} decides")
    return step / least[by]


def largest_gpt(out, _):
    for path in sorted(out.glob("largest_*.json"), key=lambda it: -int(it.stem.split("_")[1])):
        try:
            return Training(out, path.stem).parameters / 1e9
        except Missing as why:
            print(f"largest: {why}")
    raise Missing("no size of the largest GPT finished")


def tokens_per_second(path):
    report = read_json(path)
    rate = report.get("tokens_per_second")
    if not isinstance(rate, (int, float)) or not rate > 0:
        raise Missing(f"{path.name} has no tokens_per_second")
    if None in report.get("losses", []):
        raise Missing(f"{path.name} has losses that are no numbers")
    return rate


def libtorch_over_fsdp2(out, _):
    ours = tokens_per_second(out / "libtorch.json")
    both = []
    for pin in ("yes", "no"):
        try:
            both.append(tokens_per_second(out / f"fsdp2_pin_{pin}.json"))
        except Missing as why:
            print(f"fsdp2: {why}")
    if len(both) < 2:
        raise Missing("FSDP2 did not finish with both choices of pinned memory")
    return ours / max(both)


def identical(out, rates):
    """Trainings whose losses or parameters are others with a quarter of the memory: never any. Pairs that are not whole are said and left out."""
    different = compared = 0
    batches = rates["batches"] if rates else batches_that_ran(out)
    for batch in batches:
        try:
            capped, whole = Training(out, f"gpt_capped_{batch}"), Training(out, f"gpt_whole_{batch}")
        except Missing as why:
            print(f"capped and whole at batch {batch}: not compared, {why}")
            continue
        compared += 1
        if None in capped.losses + whole.losses:
            print(f"capped and whole at batch {batch}: losses that are no numbers")
            different += 1
        else:
            different += capped.losses != whole.losses or capped.hash != whole.hash
    if compared == 0:
        raise Missing("no pair of trainings finished")
    print(f"compared capped and whole: {compared} of {len(batches)}")
    return different


LARGEST = ("cuda.largest_gpt_billions", largest_gpt, "10^9 parameters", ">=", 0)
IDENTICAL = ("cuda.trainings_that_differ", identical, "trainings", "==", 0)
FIRST = [
    ("cuda.chunked_over_whole_tokens", chunked_over_whole, "ratio", ">=", 0),
    LARGEST,
    IDENTICAL,
]
FIGURES = [
    ("cuda.capped_over_uncapped_tokens", capped_over_uncapped, "ratio", ">=", 0.9),
    ("cuda.step_over_link_bound", step_over_link_bound, "ratio", "<=", 1.1),
    LARGEST,
    ("cuda.libtorch_over_fsdp2_tokens", libtorch_over_fsdp2, "ratio", ">=", 1.5),
    IDENTICAL,
]


def rates_of(out):
    try:
        rates = read_json(out / "rates.json")
    except Missing as why:
        print(f"gpu_figures: {why}")
        return NoRates(why)
    if rates["from"] != "measured rates":
        sys.exit("gpu_figures: these rates were not measured: no figure is made of them")
    return rates


def main():
    first = sys.argv[1:2] == ["--first"]
    if len(sys.argv) != 2 + first:
        sys.exit("usage: gpu_figures.py [--first] OUTDIR")
    out = pathlib.Path(sys.argv[1 + first])
    rates = NoRates("--first measures none") if first else rates_of(out)
    records = []
    damaged = False
    for name, value_of, unit, relation, bound in FIRST if first else FIGURES:
        try:
            value = value_of(out, rates)
        except Missing as why:
            print(f"{name}: not measured, {why}")
            continue
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as why:  # one damaged file takes one figure
            print(f"{name}: not measured, {type(why).__name__}: {why}")
            damaged = True
            continue
        records.append({"name": name, "value": value, "unit": unit, "relation": relation, "bound": bound, **device(),
                        **({"t_star": rates["t_star"]} if rates else {}), "command": f"sh bench/gpu.sh --{'first' if first else 'full'} OUTDIR"})
        print(f"{name} is {value:.4g} {unit}, bound {relation} {bound}")
    (out / "figures").mkdir(exist_ok=True)
    if records:
        (out / "figures" / "gpu_campaign.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return 1 if damaged else 0


if __name__ == "__main__":
    sys.exit(main())
