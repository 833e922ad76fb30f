#!/usr/bin/env python3
"""Figures of a campaign of bench/gpu.sh, from what its parts left: python3 bench/gpu_figures.py OUTDIR

A figure whose parts are missing is not written, and a line says why. Which steps count was decided before any was seen: the second
half of a training, since the first steps record, plan, and meet everything for the first time.
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


def read_json(path):
    if not path.exists():
        raise Missing(f"{path.name} is not there")
    return json.loads(path.read_text(encoding="utf-8"))


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
        self.parameters = int(HEADER.search(text).group(1))
        report = read_json(out / f"{name}.json")
        self.losses, self.hash, self.memory = report["losses"], report["parameter_hash"], report["memory"]

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


def capped_over_uncapped(out, rates):
    worst = Training(out, f"gpt_capped_{rates['batches'][1]}"), Training(out, f"gpt_whole_{rates['batches'][1]}")
    return worst[0].tokens_per_second / worst[1].tokens_per_second


def step_over_link_bound(out, rates):
    """Below T*, where the links decide: the step against the slower of both links, each at the rate measured beside the other."""
    batch = rates["batches"][0]
    run = Training(out, f"gpt_capped_{batch}")
    loaded = run.memory["loaded"] / (run.memory["loaded"] + run.memory["written_back"])
    bound = max(run.moved * loaded / rates["to_device"], run.moved * (1 - loaded) / rates["to_host"])
    return run.seconds(batch * rates["context"]) / bound


def largest_gpt(out, _):
    for path in sorted(out.glob("largest_*.json"), key=lambda it: -int(it.stem.split("_")[1])):
        return Training(out, path.stem).parameters / 1e9
    raise Missing("no size of the largest GPT finished")


def libtorch_over_fsdp2(out, _):
    ours = read_json(out / "libtorch.json")["tokens_per_second"]
    both = []
    for pin in ("yes", "no"):
        try:
            both.append(read_json(out / f"fsdp2_pin_{pin}.json")["tokens_per_second"])
        except Missing as why:
            print(f"fsdp2: {why}")
    if len(both) < 2:
        raise Missing("FSDP2 did not finish with both choices of pinned memory")
    return ours / max(both)


def identical(out, rates):
    """Trainings at each size whose losses or parameters are others with a quarter of the memory: never any."""
    different = 0
    for batch in rates["batches"]:
        capped, whole = Training(out, f"gpt_capped_{batch}"), Training(out, f"gpt_whole_{batch}")
        different += capped.losses != whole.losses or capped.hash != whole.hash
    return different


FIGURES = [
    ("cuda.capped_over_uncapped_tokens", capped_over_uncapped, "ratio", ">=", 0.9),
    ("cuda.step_over_link_bound", step_over_link_bound, "ratio", "<=", 1.1),
    ("cuda.largest_gpt_billions", largest_gpt, "10^9 parameters", ">=", 0),
    ("cuda.libtorch_over_fsdp2_tokens", libtorch_over_fsdp2, "ratio", ">=", 1.5),
    ("cuda.trainings_that_differ", identical, "trainings", "==", 0),
]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: gpu_figures.py OUTDIR")
    out = pathlib.Path(sys.argv[1])
    try:
        rates = read_json(out / "rates.json")
    except Missing as why:
        sys.exit(f"gpu_figures: {why}")
    if rates["from"] != "measured rates":
        sys.exit("gpu_figures: these rates were not measured: no figure is made of them")
    records = []
    for name, value_of, unit, relation, bound in FIGURES:
        try:
            value = value_of(out, rates)
        except Missing as why:
            print(f"{name}: not measured, {why}")
            continue
        records.append({"name": name, "value": value, "unit": unit, "relation": relation, "bound": bound, **device(),
                        "t_star": rates["t_star"], "command": "sh bench/gpu.sh OUTDIR"})
        print(f"{name} is {value:.4g} {unit}, bound {relation} {bound}")
    (out / "figures").mkdir(exist_ok=True)
    if records:
        (out / "figures" / "gpu_campaign.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
