#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small mistakes in headers, chosen by chance, and whether the tests find them.

    python3 tools/mutants.py list [--count 60] [--seed 20261128] > mutants.jsonl
    python3 tools/mutants.py judge [--mutants mutants.jsonl] [--from N] [--to N] [--compiler clang++] > verdicts.jsonl

A mutant changes one operator, number or word of one line. Lines are drawn from all code of include/chunkmem outside of
WAITING, each with the same chance, so the same seed and sources give the same mutants. A mutant that does not compile is
no mutant: the next draw takes its place.

A mutant is judged by tests, the cheapest first: the test files that include its header directly, then all of its
folder, then those of the folders whose headers include it. The first that fails kills it, if it passes without the
mutant; so does one that does not compile, or that takes ten times as long and 30 s: a mutant may be a loop without an
end. What no test kills survives (`"killed_by": null`). The test files of one kind are compiled together, without
optimisation. Cost: a minute for each mutant, ten for one that survives in a low folder.

`--mutants` judges a list of another commit: each mutant is found again by its line and the lines around it, in whatever
header they are now. One whose line is gone has `"header": null`.
"""
import argparse
import itertools
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WAITING = ("sharding", "planner", "configurator")  # to be written anew
SECONDS = 600  # of a test program without a mutant
OPERATORS = (
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" && ", " || "), (r" \|\| ", " && "),
    (r"\+\+", "--"), (r" \+= ", " -= "), (r" -= ", " += "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<=\()!(?=\w)", ""), (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"), (r"(?<![\w.])0(?![\w.])", "1"),
    (r"(?<![\w.])1(?![\w.])", "2"), (r"\bcontinue;", "break;"), (r"\bbreak;", "continue;"))


def lines_of(root):
    """Each line of code that an operator can change: its header, its number, its text without a comment."""
    for path in sorted((root / "include/chunkmem").rglob("*.hpp")):
        header = str(path.relative_to(root / "include"))
        if header.count("/") < 2 or header.split("/")[1] in WAITING:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code = line.split("//")[0]
            is_code = code.strip() and not re.match(r"\s*(#|template|static_assert|using|namespace)", code)
            if is_code and '"' not in code and any(re.search(pattern, code) for pattern, _ in OPERATORS):
                yield header, number, code


def draws(root, seed):
    """Mutants without an end, each one once."""
    chance = random.Random(seed)
    lines = list(lines_of(root))
    seen = set()
    while True:
        header, number, code = chance.choice(lines)
        places = [(found.span(), change) for pattern, change in OPERATORS for found in re.finditer(pattern, code)]
        (begin, end), change = chance.choice(places)
        if (header, number, begin, change) not in seen:
            seen.add((header, number, begin, change))
            yield {"header": header, "line": number, "was": code.strip(), "is": (code[:begin] + change + code[end:]).strip(),
                   "begin": begin, "end": end, "change": change, "indent": len(code) - len(code.lstrip()),
                   "around": around(root, header, number)}


def around(root, header, number, width=6):
    """The lines of code before and after a line, without indents: what stays when text moves to another header."""
    lines = [line.strip() for line in (root / "include" / header).read_text(encoding="utf-8").splitlines()]
    before = [line for line in lines[:number - 1] if line][-width:]
    return [*before, *[line for line in lines[number:] if line][:width]]


def found_again(root, mutant):
    """The mutant where its line is now: among equal lines, the one whose surroundings are most alike."""
    places = [(header, number, code) for header, number, code in lines_of(root) if code.strip() == mutant["was"]]
    alike = {place: len(set(around(root, *place[:2])) & set(mutant["around"])) for place in places}
    if not alike or max(alike.values()) < len(mutant["around"]) // 2:
        return {**mutant, "header": None}
    header, number, code = max(alike, key=alike.get)
    moved = (len(code) - len(code.lstrip())) - mutant["indent"]
    return {**mutant, "header": header, "line": number, "begin": mutant["begin"] + moved, "end": mutant["end"] + moved,
            "indent": mutant["indent"] + moved}


def apply(mutant, include):
    path = include / mutant["header"]
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    line = lines[mutant["line"] - 1]
    lines[mutant["line"] - 1] = line[:mutant["begin"]] + mutant["change"] + line[mutant["end"]:]
    path.write_text("".join(lines), encoding="utf-8")


def judges(root, header):
    """Sets of test files, the cheapest first."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "tests").glob("*/*_test.cpp"))}
    direct = [path for path, text in texts.items() if f"<{header}>" in text]
    folder = header.split("/")[1]
    including = {str(path.relative_to(root / "include")).split("/")[1]
                 for path in sorted((root / "include/chunkmem").rglob("*.hpp"))
                 if f"#include <{header}>" in path.read_text(encoding="utf-8")} - {folder, *WAITING}
    yield direct
    yield [path for path in texts if path.parent.name == folder and path not in direct]
    for other in sorted(including):
        yield [path for path in texts if path.parent.name == other and path not in direct]


class Bench:
    """A copy of the headers, in which one mutant lies at a time."""

    def __init__(self, work, compiler):
        self.work = work
        self.compiler = compiler
        self.include = work / "include"
        self.flags = ["-std=c++20", "-O0", "-g0", "-pthread", f"-I{self.include}", f"-I{ROOT / 'tests'}"]
        work.mkdir(parents=True, exist_ok=True)
        self.known = {}
        self.clean()
        self.main = work / "main.o"
        self.run(self.compiler, *self.flags, "-c", ROOT / "tests/support/main.cpp", "-o", self.main)

    def clean(self):
        shutil.rmtree(self.include, ignore_errors=True)
        shutil.copytree(ROOT / "include", self.include)

    def run(self, *words, seconds=None):
        try:
            return subprocess.run([str(word) for word in words], cwd=self.work, capture_output=True, text=True,
                                  timeout=seconds, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def compiles(self, mutant):
        unit = self.work / "unit.cpp"
        unit.write_text(f"#include <{mutant['header']}>\n", encoding="utf-8")
        return self.run(self.compiler, *self.flags, "-fsyntax-only", unit)

    def program(self, files):
        """The files' tests in one program, in which each has a namespace of its own. False where it does not compile."""
        unit = self.work / "unit.cpp"
        unit.write_text("".join(f'#include "{path}"\n' for path in files), encoding="utf-8")
        return self.run(self.compiler, *self.flags, unit, self.main, "-o", self.work / "program", "-ldl")

    def seconds_to_pass(self, seconds):
        """None where a test fails."""
        start = time.monotonic()
        passed = self.run(self.work / "program", "--abort", "~[.]", seconds=seconds)
        return time.monotonic() - start if passed else None

    def sound(self, files):
        """Programs that compile and pass without a mutant, with their seconds. What needs a library is not among them."""
        if not files:
            return []
        key = tuple(files)
        if key not in self.known:
            self.clean()
            seconds = self.seconds_to_pass(SECONDS) if self.program(files) else None
            if seconds is not None:
                self.known[key] = [(files, seconds)]
            elif len(files) == 1:
                self.known[key] = []
            else:
                half = len(files) // 2
                self.known[key] = [*self.sound(files[:half]), *self.sound(files[half:])]
        return self.known[key]

    def verdict(self, mutant):
        tried = 0
        for files in judges(ROOT, mutant["header"]):
            for part, seconds in self.sound(files):
                apply(mutant, self.include)
                passed = self.program(part) and self.seconds_to_pass(10 * seconds + 30) is not None
                self.clean()
                tried += len(part)
                if not passed:
                    return {**mutant, "killed_by": [str(path.relative_to(ROOT)) for path in part], "tried": tried}
        return {**mutant, "killed_by": None, "tried": tried}


def main():
    parser = argparse.ArgumentParser(description="small mistakes in headers, and whether the tests find them")
    parser.add_argument("what", choices=("list", "judge"))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--to", type=int)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/mutants")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--mutants", type=pathlib.Path, help="a list of another commit")
    given = parser.parse_args()
    bench = Bench(given.work.resolve(), given.compiler)
    mutants = compiled(bench, given.seed, given.count)
    if given.mutants:
        listed = map(json.loads, given.mutants.read_text(encoding="utf-8").splitlines())
        mutants = (found_again(ROOT, mutant) for mutant in listed)
    for mutant in itertools.islice(mutants, given.first, given.to):
        print(json.dumps(bench.verdict(mutant) if given.what == "judge" and mutant["header"] else mutant), flush=True)


def compiled(bench, seed, count):
    """The first draws that compile."""
    good = 0
    for mutant in draws(ROOT, seed):
        apply(mutant, bench.include)
        compiles = bench.compiles(mutant)
        bench.clean()
        good += compiles
        if compiles:
            yield mutant
        if good == count:
            return


if __name__ == "__main__":
    sys.exit(main())
