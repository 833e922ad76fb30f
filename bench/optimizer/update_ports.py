#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many cycles does the loop of an update by Adam take, by a model of a processor's ports?

    python3 bench/optimizer/update_ports.py [--compiler g++] [--mca llvm-mca-16] [--processors znver3 znver4 ...]

Compiles update_instructions_bench.cpp at -O2, takes the loops for AVX2 and for AVX-512 out of the program, and asks
llvm-mca (Debian: apt-get install llvm-16) about each: instructions of a vector, cycles if ports alone were busy, and
cycles of a vector among hundreds. All loads are taken for hits in the first cache. A vector is eight elements with AVX2
and 16 with AVX-512. Nothing is run, so the processor at hand does not matter.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {(0, "false", 0): "float32", (1, "true", 0): "bf16 with a master", (2, "true", 0): "fp16 with a master",
         (1, "false", 0): "bf16 alone, random rounding", (1, "false", 1): "all lists bf16, random rounding"}
WIDE = ("znver4", "skylake-avx512", "icelake-server")  # have AVX-512
LOOP = re.compile(r"::run_(avx2|avx512)<.*usual_types<\(.*dtype\)(\d), (true|false), \(.*dtype\)(\d)> >\(")
THIRD = "numerics)3"


def functions(program):
    """(name, lines): each line is an address, an instruction and where it jumps to, or None."""
    text = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", program], capture_output=True, text=True, check=True)
    for part in text.stdout.split("\n\n"):
        name, *rest = part.strip().split("\n")
        lines = []
        for line in rest:
            address, _, code = line.partition(":\t")
            code = code.split("#")[0].strip()
            target = re.match(r"j\w+\s+([0-9a-f]+)", code)
            lines.append((int(address, 16), code, int(target[1], 16) if target else None))
        yield name, lines


def loop_of(lines):
    """The instructions of a turn: of the loop with the roots, and of that with the quotients where it is another one."""
    loops = [(to, at) for at, _, to in lines if to is not None and lines[0][0] <= to < at]
    inner = [it for it in loops if not any(it != other and it[0] <= other[0] and other[1] <= it[1] for other in loops)]
    code_of = lambda it: [code for at, code, to in lines if it[0] <= at <= it[1] and to is None]  # jumps out are not taken
    most = lambda name: max(map(code_of, inner), key=lambda code: vectors_of(code, name))
    roots, quotients = most("vsqrtps"), most("vdivps")
    return roots if roots == quotients else roots + quotients


def vectors_of(loop, name="vsqrtps"):
    return sum(code.startswith(name) for code in loop)


def cycles(mca, processor, loop):
    """(of the ports, of a vector)"""
    done = subprocess.run([mca, f"-mcpu={processor}", "-iterations=100", "-mtriple=x86_64"], input="\n".join(loop),
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{mca}: {done.stderr.strip()}")
    number = lambda name: float(re.search(rf"{name}:\s+([\d.]+)", done.stdout)[1])
    return number("Block RThroughput") / vectors_of(loop), number("Total Cycles") / 100 / vectors_of(loop)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--compiler", default="g++")
    options.add_argument("--mca", default="llvm-mca-16")
    options.add_argument("--processors", nargs="+", default=["znver3", "znver4", "skylake-avx512"])
    chosen = options.parse_args()
    for program in (chosen.compiler, chosen.mca, "objdump"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not there (see --help, and the head of this file)")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "program")
        subprocess.run([chosen.compiler, "-std=c++20", "-O2", "-g0", "-pthread", "-I", ROOT / "include",
                        ROOT / "bench/optimizer/update_instructions_bench.cpp", "-o", program], check=True)
        loops = {}
        for name, lines in functions(program):
            if (found := LOOP.search(name)) and THIRD in name:
                loops[found[1], KINDS.get((int(found[2]), found[3], int(found[4])))] = loop_of(lines)
    for wide in ("avx2", "avx512"):
        for kind in KINDS.values():
            if (wide, kind) not in loops:
                continue
            loop = loops[wide, kind]
            print(f"{wide:7} {kind:32} {len(loop) / vectors_of(loop):5.2f} instructions", end="")
            for processor in chosen.processors:
                if wide == "avx2" or processor in WIDE:
                    print("   {} ports {:5.1f}, vector {:5.1f}".format(processor, *cycles(chosen.mca, processor, loop)), end="")
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
