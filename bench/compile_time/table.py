#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long does a compiler take for programs of chunkmem, and for small programs of other libraries?

    python3 bench/compile_time/table.py [--compiler g++] [--rounds 3]

Prints a table of user seconds at -O0 and -O2, one source file each, without the link. A round compiles all of them, one
after the other; a number is the median of the rounds. A library whose headers are not there has dashes: Debian has
libfmt-dev, libeigen3-dev, libtorch-dev, nlohmann-json3-dev and libxxhash-dev.
"""
import argparse
import os
import pathlib
import statistics
import subprocess

from measure import COMPILED, HERE, QUICK_START, ROOT, user_seconds

LOOPS = "examples/plain_loops"
# A description, the source, further compiler options, and a header without which the program is left out.
PROGRAMS = (
    ("fmt: one line of text", f"{HERE}/peers/fmt.cpp", (), "fmt/core.h"),
    ("Eigen: a product of matrices", f"{HERE}/peers/eigen.cpp", ("-I/usr/include/eigen3",), "Eigen/Dense"),
    ("LibTorch: one layer with Adam", f"{HERE}/peers/libtorch.cpp", ("-I/usr/include/torch/csrc/api/include",),
     "torch/torch.h"),
    ("`chunkmem.hpp` alone", f"{HERE}/umbrella.cpp", (), ""),
    ("quick start (`first_training.cpp`)", QUICK_START, (), ""),
    ("quick start with `chunkmem::compiled`", QUICK_START, COMPILED, ""),
    ("GPT in plain loops (`plain_loops/main.cpp`)", f"{LOOPS}/main.cpp", (), ""),
    ("the same with a save and a load", f"{HERE}/trainer_with_saves.cpp", (f"-I{LOOPS}",), "nlohmann/json.hpp"),
    ("ranks (`ranks_threads.cpp`)", "examples/ranks_threads.cpp", (), ""),
)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--compiler", default="g++")
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()

    def command(words, source, *more):
        return [chosen.compiler, "-std=c++20", "-I", "include", *words, *more, source]

    def is_there(header, words):
        asked = subprocess.run(command(words, "-", "-E", "-x", "c++"), input=f"#include <{header}>\n", text=True,
                               capture_output=True)
        return not header or asked.returncode == 0

    os.chdir(ROOT)
    levels = ("-O0", "-O2")
    here = [row for row in PROGRAMS if is_there(row[3], row[2])]
    seconds = {(row[0], level): [] for row in here for level in levels}
    for _ in range(chosen.rounds):
        for name, source, words, _ in here:
            for level in levels:
                compilation = command(words, source, level, "-c", "-o", os.devnull)
                seconds[name, level].append(user_seconds(compilation))
    print(f"| user seconds | {' | '.join(levels)} |\n|---|--:|--:|")
    for name, *_ in PROGRAMS:
        row = [f"{statistics.median(seconds[name, level]):.1f}" if (name, level) in seconds else "-" for level in levels]
        print(f"| {name} | {' | '.join(row)} |")
    version = subprocess.run([chosen.compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    print(f"\n{processor()}, {os.cpu_count()} cores, {version}, median of {chosen.rounds}.")


if __name__ == "__main__":
    main()
