#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small mistakes in headers, chosen by chance, and whether the tests find them.

    python3 tools/mutants.py list [--count 60] [--seed 20261128] > mutants.jsonl
    python3 tools/mutants.py judge --mutants mutants.jsonl [--known verdicts.jsonl] [--root ../before] > verdicts.jsonl

A mutant changes one operator, number or word of one line. Lines are drawn from all code of include/chunkmem outside
of WAITING, each with the same chance, so the same seed and sources give the same mutants. A mutant that does not
compile is no mutant: the next draw takes its place.

The mutants that are judged may be a list of another commit: each is found again by its line and the lines around it,
in whatever header they are now. One whose line is gone has `"header": null` and is not judged.

All mutants lie in one copy of the headers, each behind a switch that reads the variable CHUNKMEM_MUTANT when the
program runs: the innermost expression E of the mutant becomes `(on(17) ? (mutant of E) : (E))`. So the tests of a
folder are compiled once for all mutants, and run once for each (mutant schemata, Untch, Offutt, Harrold, 1993). An
error of the compiler names the switch that it is about. Where a switch does not compile, the next larger expression
gets it. Where a constant is wanted, the switch is off in constants. What survives with such a switch, or has none, is
judged once more by itself: plainly changed, in a program of its own, where a test that does not compile kills it too.

A mutant is judged by the test files of its folder, those that include its header first, then by files elsewhere that
include it, then by those of the folders whose headers include it. Only files that pass without a mutant judge, each
with ten times its seconds and 30 more: a mutant may be a loop without an end. The first file that fails is
`"killed_by"`; it is null where none fails. With `--known`, the file that killed a mutant before judges it first. On
stderr: files that are left out, since they want libraries or failed without a mutant.

Cost on one core for 60 mutants: twenty minutes to compile without optimisation (clang 16), twenty to run; with
`--known` some fifteen in all. A mutant judged by itself costs one to five.
"""
import argparse
import functools
import itertools
import json
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
AT_ONCE = 12  # test files in one compilation
OPERATORS = (
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" && ", " || "), (r" \|\| ", " && "),
    (r"\+\+", "--"), (r" \+= ", " -= "), (r" -= ", " += "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<=\()!(?=\w)", ""), (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"), (r"(?<![\w.])0(?![\w.])", "1"),
    (r"(?<![\w.])1(?![\w.])", "2"), (r"\bcontinue;", "break;"), (r"\bbreak;", "continue;"))


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8")


def lines_of(root):
    """Each line of code that an operator can change: its header, its number, its text without a comment."""
    for path in sorted((root / "include/chunkmem").rglob("*.hpp")):
        header = str(path.relative_to(root / "include"))
        if header.count("/") < 2 or header.split("/")[1] in WAITING:
            continue
        for number, line in enumerate(text_of(path).splitlines(), 1):
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


def judges(root, header):
    """Sets of test files, the cheapest first."""
    texts = {path: text_of(path) for path in sorted((root / "tests").glob("*/*_test.cpp"))}
    folder = header.split("/")[1]
    direct = {path for path, text in texts.items() if f"<{header}>" in text}
    including = {path.parent.name for path in sorted((root / "include/chunkmem").rglob("*.hpp"))
                 if f"#include <{header}>" in text_of(path)} - {folder, *WAITING}
    own = {path for path in texts if path.parent.name == folder}
    yield sorted(own & direct)
    yield sorted(own - direct)
    yield sorted(direct - own)
    for other in sorted(including):
        yield [path for path in texts if path.parent.name == other and path not in direct]


class Bench:
    """A copy of the headers, and programs of tests with it."""

    def __init__(self, root, work, compiler, libraries, *flags):
        self.root, self.work, self.compiler, self.libraries = root, work, compiler, libraries
        self.include = work / "include"
        self.flags = ["-std=c++20", "-O0", "-g0", "-pthread", f"-I{self.include}", f"-I{root / 'tests'}",
                      f"-I{root / 'bench'}", *flags]
        self.made = itertools.count()
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
            return "no end"
        return f"status {done.returncode}: {done.stderr.decode(errors='replace')}" if done.returncode != 0 else None

    def compiles(self, mutant):
        unit = self.work / "unit.cpp"
        unit.write_text(f"#include <{mutant['header']}>\n", encoding="utf-8")
        return self.run(self.compiler, *self.flags, "-fsyntax-only", unit) is None

    def compiled(self, files):
        """The files as one object, each test in a namespace of its own, and what the compiler said against it."""
        unit, target = self.work / "unit.cpp", self.work / f"{next(self.made)}.o"
        unit.write_text("".join(f'#include "{path}"\n' for path in files), encoding="utf-8")
        return target, self.run(self.compiler, *self.flags, "-c", unit, "-o", target)

    def support(self):
        """Objects that all programs have."""
        if not (self.work / "main.o").exists():
            for name in ("main", "count_allocations"):
                source = self.root / "tests/support" / f"{name}.cpp"
                self.run(self.compiler, *self.flags, "-c", source, "-o", self.work / f"{name}.o")
        return self.work / "main.o", self.work / "count_allocations.o"

    def linked(self, objects):
        """The program, or None."""
        program = self.work / f"{next(self.made)}"
        failed = self.run(self.compiler, "-pthread", *objects, *self.support(), "-o", program, *self.libraries)
        return None if failed else program

    def seconds_to_pass(self, program, path, seconds, mutant=None):
        """None where a test of the file fails, or where it has none."""
        start = time.monotonic()
        cases = ["--filenames-as-tags", f"[#{path.stem}]~[.]"]
        failed = self.run(program, "--abort", *cases, seconds=seconds, mutant=mutant)
        return None if failed else time.monotonic() - start


def units_of(files):
    """Files that are compiled together. One that defines a macro is alone."""
    alone = [path for path in files if re.search(r"^#define", text_of(path), re.MULTILINE)]
    others = [path for path in files if path not in alone]
    return [[path] for path in alone] + [others[at:at + AT_ONCE] for at in range(0, len(others), AT_ONCE)]


class Tests:
    """The tests of each folder with all mutants, compiled when a mutant first asks for them."""

    def __init__(self, bench, switches):
        self.bench = bench
        self.switches = switches
        self.folders = {}

    def sound(self, path):
        """The program of a file that passes without a mutant, and its seconds. None where it does not."""
        if path.parent not in self.folders:
            start = time.monotonic()
            self.folders[path.parent] = dict(self.of_folder(path.parent))
            note(f"{path.parent.name}: {len(self.folders[path.parent])} files in {time.monotonic() - start:.0f} s")
        return self.folders[path.parent].get(path)

    def of_folder(self, folder):
        objects = [each for unit in units_of(sorted(folder.glob("*_test.cpp"))) for each in self.objects(unit)]
        together = self.bench.linked([target for target, _ in objects]) if objects else None
        for target, files in objects:
            program = together or self.bench.linked([target])
            for path in files:
                seconds = self.bench.seconds_to_pass(program, path, SECONDS) if program else None
                if seconds is None:
                    note(f"left out: {folder.name}/{path.name}")
                else:
                    yield path, (program, seconds)

    def objects(self, files):
        target, errors = self.bench.compiled(files)
        while errors and self.switches.mend(errors):
            target, errors = self.bench.compiled(files)
        if not errors:
            return [(target, files)]
        if len(files) == 1:
            note(f"left out: {files[0].parent.name}/{files[0].name} does not compile")
            return []
        half = len(files) // 2
        return [*self.objects(files[:half]), *self.objects(files[half:])]


class Judge:
    def __init__(self, root, plain, tests, known):
        self.root, self.plain, self.tests, self.known = root, plain, tests, known

    def verdict(self, number, mutant):
        killer, by_itself = self.known.get(number, (None, False))
        sets = [[killer] if killer else [], *judges(self.root, mutant["header"])]
        switches = self.tests.switches
        if switches.has(number) and not by_itself:
            for path in itertools.chain(*sets):
                if self.tests.sound(path) and not self.passes(path, number):
                    return {**mutant, "killed_by": self.name(path)}
            if switches.is_whole(number):
                return {**mutant, "killed_by": None}
        return {**mutant, "killed_by": self.killer_of_one_alone(mutant, sets), "by_itself": True}

    def name(self, path):
        return str(path.relative_to(self.root))

    def passes(self, path, number):
        program, seconds = self.tests.sound(path)
        return self.plain.seconds_to_pass(program, path, 10 * seconds + 30, number) is not None

    def killer_of_one_alone(self, mutant, sets):
        self.plain.clean()
        apply(mutant, self.plain.include)
        for files in sets:
            for unit in units_of([path for path in files if self.tests.sound(path)]):
                target, errors = self.plain.compiled(unit) if unit else (None, None)
                program = None if errors or not unit else self.plain.linked([target])
                for path in unit:
                    seconds = 10 * self.tests.sound(path)[1] + 30
                    if not program or self.plain.seconds_to_pass(program, path, seconds) is None:
                        return self.name(path)
        return None


def note(sentence):
    print(sentence, file=sys.stderr, flush=True)


def compiled(bench, seed, count):
    """The first draws that compile."""
    good = 0
    for mutant in draws(bench.root, seed):
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
    """The mutants with what killed them, those without a header as they are."""
    switched = Bench(given.root, given.work / "switched", given.compiler, given.libraries, "-Werror=vla",
                     "-ferror-limit=0", "-fconstexpr-backtrace-limit=0", "-include", mutant_switches.HEADER)
    plain = Bench(given.root, given.work / "plain", given.compiler, given.libraries)
    living = {number: mutant for number, mutant in enumerate(mutants) if mutant["header"]}
    switches = mutant_switches.Switches(switched.include, living)
    known = {number: (given.root / verdict["killed_by"], verdict.get("by_itself", False))
             for number, verdict in enumerate(read(given.known)) if verdict.get("killed_by")} if given.known else {}
    judge = Judge(given.root, plain, Tests(switched, switches), known)
    for number, mutant in enumerate(mutants):
        yield judge.verdict(number, mutant) if number in living else mutant


def main():
    parser = argparse.ArgumentParser(description="small mistakes in headers, and whether the tests find them")
    parser.add_argument("what", choices=("list", "judge"))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--mutants", type=pathlib.Path, help="a list, perhaps of another commit, instead of draws")
    parser.add_argument("--known", type=pathlib.Path, help="verdicts: what killed a mutant then judges it first")
    parser.add_argument("--root", type=pathlib.Path, default=HERE.parent, help="the tree")
    parser.add_argument("--work", type=pathlib.Path, help="default: build/mutants of the tree")
    parser.add_argument("--compiler", default="clang++-16", help="a clang: its messages name the switches")
    parser.add_argument("--libraries", type=str.split, default=["-ldl"], help='of tests, as "-ldl -lglpk"')
    given = parser.parse_args()
    given.root = given.root.resolve()
    given.work = (given.work or given.root / "build/mutants").resolve()
    if given.mutants:
        lines = list(lines_of(given.root))
        mutants = [found_again(given.root, lines, mutant) for mutant in read(given.mutants)]
    else:
        bench = Bench(given.root, given.work / "plain", given.compiler, given.libraries)
        mutants = compiled(bench, given.seed, given.count)
    for each in mutants if given.what == "list" else verdicts(given, list(mutants)):
        print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main()
