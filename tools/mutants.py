#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small mistakes in headers, chosen by chance, and whether the tests find them.

    python3 tools/mutants.py list [--count 60] [--seed 20261128] [--folders manager,sharding] > mutants.jsonl
    python3 tools/mutants.py judge --mutants mutants.jsonl [--known FILE] [--done FILE] [--root ../old] > verdicts.jsonl

A mutant changes one operator, number or word of one line. Lines are drawn from all code of include/chunkmem in the
folders, or outside of WAITING, each with the same chance, so the same seed, folders and sources give the same mutants.
A mutant that does not compile is no mutant: the next draw takes its place.

The mutants that are judged may be a list of another commit: each is found again by its line and the lines around it,
in whatever header they are now. One whose line is gone has `"header": null` and is not judged.

All mutants lie in one copy of the headers, each behind a switch that reads the variable CHUNKMEM_MUTANT when the
program runs: the innermost expression E of the mutant becomes `(on(17) ? (mutant of E) : (E))`. So a test file is
compiled once for all mutants, and runs once for each (mutant schemata, Untch, Offutt, Harrold, 1993). An
error of the compiler names the switch that it is about. Where a switch does not compile, the next larger expression
gets it. Where a constant is wanted, the switch is off in constants. What survives with such a switch, or has none, is
judged once more by itself: plainly changed, in a program of its own, where a test that does not compile kills it too.

A mutant is judged by the test files of its folder, those that include its header first, then by files elsewhere that
include it, then by those of the folders whose headers include it: each file is compiled when its turn comes and runs
for all mutants that it judges and that still live; files that take long come last. Only files that pass without a
mutant judge, each with ten times its seconds and 30 more: a mutant may be a loop without an end. The first file that
fails is `"killed_by"`; it is null where none fails. On stderr: each test file with its seconds; those that want
libraries or fail without a mutant are left out.

With `--known`, what killed a mutant in other verdicts judges it first. With `--done`, what other verdicts say of a
mutant is not judged again: so a judgement that was interrupted goes on.

Cost, with clang 16 and without optimisation: 5 seconds of a processor for the headers, twice or more until all
switches compile, and 1 to 9 for each test file. What survives asks for all files that judge it.
"""
import argparse
import collections
import functools
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

import mutant_switches

HERE = pathlib.Path(__file__).resolve().parent
WAITING = ("sharding", "planner", "configurator")  # to be written anew
SECONDS = 600  # of a test file without a mutant
LAST = 5  # rank of files that are slow
NO_END = "no end"
QUICK, SLOW = 2, 20  # seconds of a test file
OPERATORS = (
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" && ", " || "), (r" \|\| ", " && "),
    (r"\+\+", "--"), (r" \+= ", " -= "), (r" -= ", " += "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<=\()!(?=\w)", ""), (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"),
    (r"(?<![\w.])0(?![\w.])", "1"),
    (r"(?<![\w.])1(?![\w.])", "2"), (r"\bcontinue;", "break;"), (r"\bbreak;", "continue;"))


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8")


def lines_of(root, folders):
    """Each line of code that an operator can change: its header, its number, its text without a comment."""
    for path in sorted((root / "include/chunkmem").rglob("*.hpp")):
        header = str(path.relative_to(root / "include"))
        if header.count("/") < 2 or header.split("/")[1] not in folders:
            continue
        for number, line in enumerate(text_of(path).splitlines(), 1):
            code = line.split("//")[0]
            is_code = code.strip() and not re.match(r"\s*(#|template|static_assert|using|namespace)", code)
            if is_code and '"' not in code and any(re.search(pattern, code) for pattern, _ in OPERATORS):
                yield header, number, code


def folders_of(root):
    return {path.name for path in (root / "include/chunkmem").iterdir() if path.is_dir()}


def draws(root, seed, folders):
    """Mutants without an end, each one once."""
    chance = random.Random(seed)
    lines = list(lines_of(root, folders))
    seen = set()
    while True:
        header, number, code = chance.choice(lines)
        places = [(found.span(), change) for pattern, change in OPERATORS for found in re.finditer(pattern, code)]
        (begin, end), change = chance.choice(places)
        if (header, number, begin, change) not in seen:
            seen.add((header, number, begin, change))
            yield {"header": header, "line": number, "was": code.strip(),
                   "is": (code[:begin] + change + code[end:]).strip(),
                   "begin": begin, "end": end, "change": change, "indent": len(code) - len(code.lstrip()),
                   "around": around(root, header, number)}


def around(root, header, number, width=6):
    """The lines of code before and after a line, without indents: what stays when text moves to another header."""
    lines = [line.strip() for line in text_of(root / "include" / header).splitlines()]
    before = [line for line in lines[:number - 1] if line][-width:]
    return [*before, *[line for line in lines[number:] if line][:width]]


def found_again(root, lines, mutant):
    """The mutant where its line is now: among equal lines, the one whose surroundings are most alike."""
    places = [(header, number, code) for header, number, code in lines if code.strip() == mutant["was"]]
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


def judges(root, header, folders):
    """Test files and their ranks, 0 for what is most likely to notice."""
    texts = {path: text_of(path) for path in sorted((root / "tests").glob("*/*_test.cpp"))}
    folder, named = header.split("/")[1], f"{pathlib.Path(header).stem}_test"
    including = {path.parent.name for path in sorted((root / "include/chunkmem").rglob("*.hpp"))
                 if f"#include <{header}>" in text_of(path)} - {folder} - ({*WAITING} - folders)
    ranks = {}
    for path, text in texts.items():
        is_own, is_direct = path.parent.name == folder, f"<{header}>" in text
        if is_own or is_direct or path.parent.name in including:
            named_or_direct = 0 if path.stem == named else 1
            ranks[path] = (named_or_direct if is_direct else 2) if is_own else (3 if is_direct else 4)
    return ranks


class Bench:
    """A copy of the headers, and programs of tests with it."""

    def __init__(self, root, work, compiler, libraries, *flags):
        self.root, self.work, self.compiler, self.libraries = root, work, compiler, libraries
        self.include = work / "include"
        self.flags = ["-std=c++20", "-O0", "-g0", "-pthread", f"-I{self.include}", f"-I{root / 'tests'}",
                      f"-I{root / 'bench'}", *flags]
        work.mkdir(parents=True, exist_ok=True)
        self.clean()

    def clean(self):
        shutil.rmtree(self.include, ignore_errors=True)
        shutil.copytree(self.root / "include", self.include)

    def run(self, *words, seconds=None, mutant=None):
        """What went wrong, or None."""
        environment = os.environ if mutant is None else {**os.environ, "CHUNKMEM_MUTANT": str(mutant)}
        try:
            done = subprocess.run([str(word) for word in words], cwd=self.work, capture_output=True, timeout=seconds,
                                  check=False, env=environment)
        except subprocess.TimeoutExpired:
            return NO_END
        return f"status {done.returncode}: {done.stderr.decode(errors='replace')}" if done.returncode != 0 else None

    def compiles(self, mutant):
        unit = self.work / "unit.cpp"
        unit.write_text(f"#include <{mutant['header']}>\n", encoding="utf-8")
        return self.run(self.compiler, *self.flags, "-fsyntax-only", unit) is None

    def precompile(self):
        """What most tests include, compiled once: half of the time. Returns what the compiler said against it."""
        every = self.work / "every.hpp"
        every.write_text("#include <support/catch.hpp>\n#include <chunkmem/chunkmem.hpp>\n", encoding="utf-8")
        for name in () if (self.work / "main.o").exists() else ("main", "count_allocations"):
            source = self.root / "tests/support" / f"{name}.cpp"
            self.run(self.compiler, *self.flags, "-c", source, "-o", self.work / f"{name}.o")
        self.precompiled = self.work / "every.pch"
        return self.run(self.compiler, *self.flags, "-x", "c++-header", every, "-o", self.precompiled)

    def program(self, path):
        """The program of a test file and None, or None and what the compiler said against it."""
        program = self.work / f"{path.parent.name}.{path.stem}"
        source = [*self.flags, "-c", path, "-o", f"{program}.o"]
        defines = re.search(r"^#define", text_of(path), re.MULTILINE)
        failed = "a macro is before the headers" if defines else self.run(
            self.compiler, *source, "-include-pch", self.precompiled)
        if failed:  # such as an ambiguous name
            failed = self.run(self.compiler, *source)
        failed = failed or self.run(self.compiler, "-pthread", f"{program}.o", self.work / "main.o",
                                    self.work / "count_allocations.o", "-o", program, *self.libraries)
        return (None, failed) if failed else (program, None)

    def seconds_to_pass(self, program, path, limit, mutant=None):
        """None where a test of the file fails, or where it has none; math.inf where it takes longer."""
        start = time.monotonic()
        cases = ["--filenames-as-tags", f"[#{path.stem}]~[.]"]
        failed = self.run(program, "--abort", *cases, seconds=limit, mutant=mutant)
        return time.monotonic() - start if failed is None else math.inf if failed == NO_END else None


class Tests:
    """Test files with all mutants, compiled when a mutant first asks for them."""

    def __init__(self, bench, switches):
        self.bench, self.switches = bench, switches
        self.known = {}
        while (errors := bench.precompile()) and switches.mend(errors):
            pass

    def mended(self, compile_it):
        """Compiles, and changes switches until the compiler takes them. What it says then, or None."""
        errors = compile_it()
        while errors and self.switches.mend(errors):
            errors = self.bench.precompile() or compile_it()
        return errors

    def sound(self, path, limit=SECONDS):
        """A file's program and its seconds without a mutant; more than SLOW may be math.inf. None where it fails."""
        if path not in self.known:
            errors = self.mended(lambda: self.bench.program(path)[1])
            self.known[path] = None if errors else (self.bench.work / f"{path.parent.name}.{path.stem}", 0)
        program, seconds = self.known[path] or (None, None)
        if seconds == 0 or (seconds == math.inf and limit == SECONDS):
            seconds = self.bench.seconds_to_pass(program, path, limit)
            fails = seconds is None or (seconds == math.inf and limit == SECONDS)
            self.known[path] = None if fails else (program, seconds)
            note(f"{path.parent.name}/{path.name}: {seconds or math.nan:.1f} s")
        return self.known[path]


class Judge:
    """Compiles one test file after the other, and runs it for each mutant that still lives."""

    def __init__(self, root, folders, plain, tests, mutants, known):
        self.root, self.plain, self.tests, self.mutants = root, plain, tests, mutants
        self.ranks = {number: judges(root, mutant["header"], folders) for number, mutant in mutants.items()}
        for number, path in known.items():
            if number in mutants and path.exists():
                self.ranks[number][path] = -1
        self.tried = set()

    def verdicts(self):
        living = set(self.mutants)
        for rank in range(-1, LAST + 1):
            while path := self.next_file(living, rank):
                for number in self.killed_by(path, living, rank):
                    living.remove(number)
                    yield self.verdict(number, path)
        for number in sorted(living):
            if self.tests.switches.is_whole(number):
                yield self.verdict(number, None)
            else:
                yield {**self.verdict(number, self.killer_of_one_alone(number)), "by_itself": True}

    def next_file(self, living, rank):
        """The file of a rank that most mutants wait for; among equals the shortest."""
        waiting = collections.Counter(path for number in living if self.tests.switches.has(number)
                                      for path, its in self.ranks[number].items()
                                      if its <= rank and (number, path) not in self.tried)
        return max(waiting, key=lambda path: (waiting[path], -len(text_of(path)), str(path)), default=None)

    def killed_by(self, path, living, rank):
        """The living that fail in a file. A quick one is run for the mutants of later ranks too, a slow one last."""
        found = self.tests.sound(path, SECONDS if rank in (-1, LAST) else SLOW)
        limit = rank
        if found and rank < LAST:
            limit = LAST if found[1] < QUICK else max(rank - 1, -1) if found[1] > SLOW else rank
        for number in sorted(living):
            its = self.ranks[number].get(path)
            if its is None or (number, path) in self.tried:
                continue
            if its > limit:
                self.ranks[number][path] = LAST if limit < rank else its
                continue
            self.tried.add((number, path))
            if found and self.tests.switches.has(number) and not self.passes(*found, path, number):
                yield number

    def passes(self, program, seconds, path, number=None):
        return self.plain.seconds_to_pass(program, path, 10 * seconds + 30, number) not in (None, math.inf)

    def verdict(self, number, path):
        return {"number": number, **self.mutants[number], "killed_by": path and str(path.relative_to(self.root))}

    def killer_of_one_alone(self, number):
        self.plain.clean()
        apply(self.mutants[number], self.plain.include)
        does_not_compile = self.plain.precompile()
        for path in sorted(self.ranks[number], key=lambda path: (self.ranks[number][path], len(text_of(path)))):
            if found := self.tests.sound(path):
                program = None if does_not_compile else self.plain.program(path)[0]
                if not program or not self.passes(program, found[1], path):
                    return path
        return None


def note(sentence):
    print(sentence, file=sys.stderr, flush=True)


def compiled(bench, seed, folders, count):
    """The first draws that compile."""
    good = 0
    for mutant in draws(bench.root, seed, folders):
        apply(mutant, bench.include)
        compiles = bench.compiles(mutant)
        bench.clean()
        good += compiles
        if compiles:
            yield mutant
        if good == count:
            return


def read(path):
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())


def verdicts(given, mutants):
    """The mutants with what killed them; first those that are done or have no header."""
    switched = Bench(given.root, given.work / "switched", given.compiler, given.libraries, "-Werror=vla",
                     "-ferror-limit=0", "-fconstexpr-backtrace-limit=0", "-include", mutant_switches.HEADER)
    plain = Bench(given.root, given.work / "plain", given.compiler, given.libraries)
    done = {verdict["number"]: verdict for verdict in (read(given.done) if given.done else ())}
    judged = {number: mutant for number, mutant in enumerate(mutants) if mutant["header"] and number not in done}
    tests = Tests(switched, mutant_switches.Switches(switched.include, judged))
    known = {verdict["number"]: given.root / verdict["killed_by"]
             for verdict in (read(given.known) if given.known else ()) if verdict.get("killed_by")}
    for number, mutant in enumerate(mutants):
        if number not in judged:
            yield done.get(number, {"number": number, **mutant})
    yield from Judge(given.root, given.folders, plain, tests, judged, known).verdicts()


def main():
    parser = argparse.ArgumentParser(description="small mistakes in headers, and whether the tests find them")
    parser.add_argument("what", choices=("list", "judge"))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--folders", type=lambda text: set(text.split(",")), help="default: all but those that wait")
    parser.add_argument("--mutants", type=pathlib.Path, help="a list, perhaps of another commit, instead of draws")
    parser.add_argument("--known", type=pathlib.Path, help="verdicts: what killed a mutant then judges it first")
    parser.add_argument("--done", type=pathlib.Path, help="verdicts that hold")
    parser.add_argument("--root", type=pathlib.Path, default=HERE.parent, help="the tree")
    parser.add_argument("--work", type=pathlib.Path, help="default: build/mutants of the tree")
    parser.add_argument("--compiler", default="clang++-16", help="a clang: its messages name the switches")
    parser.add_argument("--libraries", type=str.split, default=["-ldl"], help='of tests, as "-ldl -lglpk"')
    given = parser.parse_args()
    given.root = given.root.resolve()
    given.folders = given.folders or folders_of(given.root) - {*WAITING}
    given.work = (given.work or given.root / "build/mutants").resolve()
    if given.mutants:
        lines = list(lines_of(given.root, folders_of(given.root)))
        mutants = [found_again(given.root, lines, mutant) for mutant in read(given.mutants)]
    else:
        bench = Bench(given.root, given.work / "plain", given.compiler, given.libraries)
        mutants = compiled(bench, given.seed, given.folders, given.count)
    for each in mutants if given.what == "list" else verdicts(given, list(mutants)):
        print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main()
