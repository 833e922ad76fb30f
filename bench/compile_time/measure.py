#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long does a trainer's compiler take, with the headers of today and with those of an earlier commit?

    python3 bench/compile_time/measure.py [--compiler g++] [--rounds 5] [--folder build/compile_time]

Two programs: quick_start.cpp, the first example of version 0.1, at -O0, and the GPT in plain loops at -O2. Each is
compiled with the headers of the earlier commit, with today's, and with today's where the manager is compiled elsewhere.
A third one, examples/first_training.cpp at -O2, is compiled as it is and with the target chunkmem::compiled. A round
compiles all eight, one after the other; a figure is the median user time of all rounds over that of the earlier commit,
or over that of the plain file. The earlier headers come from the history of this clone. Status: 0 within the bounds, 1
not, 4 skipped.
"""
import argparse
import io
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = "bench/compile_time"
COMMAND = f"python3 {HERE}/measure.py"
# Version 0.1 as it was reviewed, and the commit before the manager was rebuilt: 0.1 has no GPT in plain loops.
BEFORE = {"quick_start": "959c531", "gpt": "a9685375"}
BOUND, BOUND_COMPILED, BOUND_COMPILED_O2 = 0.75, 0.5, 0.6
QUICK_START = "examples/first_training.cpp"
COMPILED = ("-include", "chunkmem/optimizer/compiled_step.hpp")


def earlier(commit, folder):
    """The headers and examples of a commit, in this folder."""
    kept = folder / commit
    if not kept.exists():
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit, "include", "examples"], capture_output=True)
        if archive.returncode != 0:
            return None
        part = folder / f"{commit}.part"  # so that an interrupted run leaves no partial folder
        shutil.rmtree(part, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(part)
        part.rename(kept)
    return kept


def user_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def compilations(compiler, old):
    """name -> (before, today, today with the manager elsewhere), or (today, with chunkmem::compiled): commands."""
    def command(top, level, source, *more):
        return [compiler, "-std=c++20", level, "-I", f"{top}/include", *more, "-c", str(source), "-o", os.devnull]

    def gpt(top, *more):
        loops = f"{top}/examples/plain_loops"
        return command(top, "-O2", f"{loops}/main.cpp", "-I", loops, *more)

    quick_start = ROOT / HERE / "quick_start.cpp"
    return {
        "quick_start": (command(old["quick_start"], "-O0", quick_start), command(ROOT, "-O0", quick_start),
                        command(ROOT, "-O0", quick_start, "-include", "chunkmem/manager/compiled_manager.hpp")),
        "gpt": (gpt(old["gpt"]), gpt(ROOT), gpt(ROOT, "-include", str(ROOT / HERE / "gpt_manager.hpp"))),
        "training": (command(ROOT, "-O2", ROOT / QUICK_START), command(ROOT, "-O2", ROOT / QUICK_START, *COMPILED)),
    }


def record(name, value, bound):
    return {"name": name, "value": round(value, 4), "unit": "ratio", "relation": "<=", "bound": bound, "command": COMMAND}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--compiler", default="g++")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/compile_time")
    chosen = options.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    old = {name: earlier(commit, chosen.folder) for name, commit in BEFORE.items()}
    if None in old.values():
        print("SKIPPED: this clone has no history of the earlier headers (git fetch --unshallow)")
        return 4
    commands = compilations(chosen.compiler, old)
    seen = {name: [[] for _ in group] for name, group in commands.items()}
    for _ in range(chosen.rounds):
        for name, group in commands.items():
            for times, command in zip(seen[name], group):
                times.append(user_seconds(command))
    seconds = {name: [statistics.median(times) for times in all_times] for name, all_times in seen.items()}
    plain, compiled = seconds["training"]
    print(f"training: {plain:.2f} s, with chunkmem::compiled {compiled:.2f} s ({compiled / plain:.3f})")
    figures = [record("house.compiled_o2_over_plain", compiled / plain, BOUND_COMPILED_O2)]
    for name, prefix in (("quick_start", "house.compile_o0_over_before"), ("gpt", "house.compile_gpt_over_before")):
        before, today, compiled = seconds[name]
        print(f"{name}: before {before:.2f} s, today {today:.2f} s ({today / before:.3f}), "
              f"with the manager compiled elsewhere {compiled:.2f} s ({compiled / before:.3f})")
        figures += [record(prefix, today / before, BOUND), record(f"{prefix}_compiled", compiled / before, BOUND_COMPILED)]
    if "CHUNKMEM_FIGURES" in os.environ:
        text = ",\n ".join(json.dumps(figure) for figure in figures)
        pathlib.Path(os.environ["CHUNKMEM_FIGURES"], "compile_time.json").write_text(f"[{text}]\n")
    return 0 if all(figure["value"] <= figure["bound"] for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
