#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers in the README and the docs are those of the records in bench/results/.

    python3 tests/pages/numbers.py [--write]

- A table between `<!-- figures: <names> -->` and `<!-- end of figures -->` is what --write makes of the records.
- "`folder.figure` is 12" is compared with the record to the digits that stand there. So is "12<!-- folder.figure -->",
  which readers see as 12.
- Lines between `<!-- output: <file> -->` and `<!-- end of output -->` are lines of that file of bench/results, in order.
- Another number with the unit of something measured is a number without a record.
- A missed bound is told in docs/performance.md, and files that repeat the version have the version.

Figure docs.numbers_without_record: what breaks these rules.
"""
import json
import os
import pathlib
import re

import page

PAGES = (*page.README_AND_DOCS, "examples/*/README.md")
OLD_AS_ITS_PARTS = "docs/decisions.md"  # each part of this page is as old as its decision
FIGURES, FIGURES_END = "<!-- figures: ", "<!-- end of figures -->"
OUTPUT, OUTPUT_END = "<!-- output: ", "<!-- end of output -->"
NAME = r"[a-z]+[.][a-z0-9_]+"
HIDDEN = re.compile(rf"([0-9]+(?:[.][0-9]+)?)<!-- ({NAME}) -->")
SENTENCE = re.compile(rf"`({NAME})`[ \n]+is[ \n]+([0-9]+(?:[.]([0-9]+))?)")
UNITS = ("%|percent|instructions|milliseconds|seconds|microseconds|ms|us|ns|tokens|times|x|million|billion|"
         "[MGT]FLOPS|[MGT]FLOP/s|[kKMGT]i?B/s")
LOOSE = re.compile(rf"(?<![\w.])([0-9](?:[0-9.,]*[0-9])?[ \n]*(?:{UNITS}))[ ,.;:)\n]")
# Files that repeat the version of core/version.hpp.
VERSIONS = {
    "CITATION.cff": r"^version: ([0-9.]+)",
    "CHANGELOG.md": r"^## ([0-9.]+)",
    "cmake/vcpkg/ports/chunkmem/vcpkg.json": r'"version": "([0-9.]+)',
    "docs/installing.md": r"chunkmem/([0-9]+[.][0-9]+[.][0-9]+)",
}


class Number(str):
    """A number as a record writes it."""

    def shortened(self):
        """Three digits where it is no whole number."""
        return f"{float(self):.3g}" if "." in self or "e" in self else str(self)

    def rounded(self, digits):
        return f"{float(self):.{digits}f}"


class Numbers:
    """The records, and what was found wrong so far."""

    def __init__(self, root, is_writing):
        self.root, self.is_writing = root, is_writing
        text = page.read(root / "bench/results/cpu.json")
        self.records = {it["name"]: it for it in json.loads(text, parse_float=Number, parse_int=Number)}
        self.wrong, self.checked = [], 0

    def table_of(self, names):
        """The table that stands between two marks."""
        rows, machines = "", []
        for name in names:
            if name not in self.records:
                self.wrong.append(f"{name} has no record")
                continue
            it = self.records[name]
            seen, bound = it["value"].shortened(), it["bound"].shortened()
            rows += f"| `{name}` | {seen} {it['unit']} | {it['relation']} {bound} |\n"
            machines.append(f"{it['machine']}, {it['date']}")
        seen_on = "; ".join(dict.fromkeys(machines))
        return f"\n| figure | seen | bound |\n|---|---|---|\n{rows}\nSeen on: {seen_on}.\n"

    def compare_tables(self, path, text):
        written = text
        for part in page.between(text, FIGURES, FIGURES_END, path.name):
            head, _, there = part.partition(" -->\n")
            names = head.removeprefix(FIGURES).split()
            self.checked += len(names)
            table = self.table_of(names)
            if there != table and self.is_writing:
                written = written.replace(part, f"{head} -->\n{table}")
            elif there != table:
                self.wrong.append(f"{self.short(path)}: a table of figures is not what the records say "
                                  "(python3 tests/pages/numbers.py --write)")
        if self.is_writing:
            page.write_if_changed(path, written)

    def compare_outputs(self, path, text):
        """Each line in turn is looked for after the line before."""
        for part in page.between(text, OUTPUT, OUTPUT_END, path.name):
            head, *lines = part.split("\n")
            name = head.removeprefix(OUTPUT).removesuffix(" -->")
            printed, at = "\n" + page.read(self.root / "bench/results" / name), 0
            for line in lines:
                if line in ("", "...") or line.startswith("```"):
                    continue
                self.checked += 1
                found = printed.find(f"\n{line}\n", at)
                if found == -1:
                    self.wrong.append(f"{self.short(path)}: bench/results/{name} has no line '{line}' there")
                else:
                    at = found + 1 + len(line)

    def compare_sentences(self, path, text):
        for name, number, digits in SENTENCE.findall(text):
            self.checked += 1
            if name not in self.records:
                self.wrong.append(f"{self.short(path)}: {name} is {number}, and has no record")
            elif self.records[name]["value"].rounded(len(digits)) != number:
                value = self.records[name]["value"]
                self.wrong.append(f"{self.short(path)}: {name} is {number}, and its record says {value}")

    def find_loose_numbers(self, path, text):
        """Numbers of something measured that stand outside of marks, of fences and of sentences about figures."""
        for begin, end in ((FIGURES, FIGURES_END), (OUTPUT, OUTPUT_END), ("\n```", "\n```")):
            text = without(text, begin, end, path.name)
        text = re.sub(SENTENCE.pattern + r"[^.|\n]*", "", text)
        self.wrong += [f"{self.short(path)}: '{number}' has no record" for number in LOOSE.findall(text)]

    def expect_missed_bounds_to_be_told(self):
        performance = page.read(self.root / "docs/performance.md")
        for name, it in self.records.items():
            value, bound = float(it["value"]), float(it["bound"])
            holds = {"<=": value <= bound, ">=": value >= bound, "==": value == bound}
            if not holds.get(it["relation"], True) and f"`{name}`" not in performance:
                self.wrong.append(f"{name} misses its bound, and docs/performance.md does not say so")

    def compare_versions(self):
        """The version has one home, and other files repeat it."""
        header = page.read(self.root / "include/chunkmem/core/version.hpp")
        number = int(re.search(r"#define CHUNKMEM_VERSION ([0-9]+)", header)[1])
        version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        for name, form in VERSIONS.items():
            self.checked += 1
            found = re.search(form, page.read(self.root / name), re.MULTILINE)
            if not found or found[1] != version:
                repeated = found[1] if found else "not there"
                self.wrong.append(f"{name}: its version is {repeated}, that of core/version.hpp {version}")

    def short(self, path):
        return str(path.relative_to(self.root))


def without(text, begin, end, where):
    """The text without the parts from a `begin` to its `end`."""
    at = text.find(begin)
    while at != -1:
        until = text.find(end, at + 1)
        if until == -1:
            page.fail("docs", f"{where}: '{begin.strip()}' has no end")
        text = text[:at] + text[until + len(end):]
        at = text.find(begin)
    return text


def record_figure(count):
    folder = os.environ.get("CHUNKMEM_FIGURES")
    if folder:
        figure = {"name": "docs.numbers_without_record", "value": count, "unit": "numbers", "relation": "==", "bound": 0,
                  "command": "ctest -R docs.numbers"}
        page.write_if_changed(pathlib.Path(folder) / "numbers.json", json.dumps([figure]) + "\n")


def main():
    given = page.arguments(__doc__, write=page.WRITE)
    numbers = Numbers(given.root, given.write)
    for path in page.pages(given.root, *PAGES):
        text = page.read(path)
        numbers.compare_tables(path, text)
        numbers.compare_outputs(path, text)
        text = HIDDEN.sub(r"`\2` is \1", text)
        numbers.compare_sentences(path, text)
        if numbers.short(path) != OLD_AS_ITS_PARTS:
            numbers.find_loose_numbers(path, text)
    numbers.expect_missed_bounds_to_be_told()
    numbers.compare_versions()
    record_figure(len(numbers.wrong))
    if not numbers.checked:
        page.fail("docs", "no number was found to compare")
    if numbers.wrong:
        page.fail("docs", f"{len(numbers.wrong)} numbers without a record:", *numbers.wrong)
    print(f"docs: {numbers.checked} numbers are those of the records")


main()
