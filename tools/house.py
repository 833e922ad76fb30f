#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How large the house is: headers, tests, lines, names in each folder, chains of includes, twins, types of managers.

    python3 tools/house.py [<top of a tree>] [--compiler g++]

With a compiler it also says how many user seconds the umbrella header takes. For a tree of before:
`git worktree add ../before <commit>` and `python3 tools/house.py ../before`.
"""
import argparse
import functools
import pathlib
import re
import resource
import statistics
import subprocess

INCLUDE = re.compile(r"^#include <chunkmem/([^>]+)>", re.MULTILINE)
WAITING = ("sharding", "planner", "configurator")  # folders that are built anew by later work
NOT_CODE = re.compile(r"^\s*(//.*)?$")


def code_lines(text):
    """Lines that are neither blank nor a comment alone."""
    return sum(not NOT_CODE.match(line) for line in text.splitlines())


def texts_below(folder, *endings):
    return {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*"))
            if path.suffix in endings and path.is_file()}


def longest_chain(includes):
    """The most headers that include each other in a row."""
    @functools.cache
    def length(header):
        return 1 + max((length(other) for other in includes[header] if other in includes), default=0)
    return max(length(header) for header in includes)


def type_at(text, begin):
    """A template name with its arguments, without blanks: what stands up to the last closing bracket."""
    depth, end = 0, text.index("<", begin)
    for end in range(end, len(text)):
        depth += {"<": 1, ">": -1}.get(text[end], 0)
        if depth == 0 or text[end] in ";{":
            break
    return re.sub(r"\s+|chunkmem::|cm::", "", text[begin:end + 1])


def spellings_of_managers(texts):
    """The different spellings of manager<...>, basic_manager<...> and sharded_model<...>."""
    found = set()
    for text in texts.values():
        for match in re.finditer(r"\b(?:manager|basic_manager|sharded_model)(?=<)", text):
            found.add(type_at(text, match.start()))
    return found


def user_seconds(root, compiler):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{root}/include", "-x", "c++", "-"], check=True,
                   input="#include <chunkmem/chunkmem.hpp>\n", text=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def rows_of(root):
    include, tests = root / "include/chunkmem", root / "tests"
    headers = {str(path.relative_to(include)): text for path, text in texts_below(include, ".hpp", ".cuh").items()}
    programs = texts_below(tests, ".cpp", ".hpp", ".cu", ".cuh")
    cases = [path for path in programs if path.name.endswith("_test.cpp")]
    folders = {}
    for name in headers:
        if "/" in name:
            folders.setdefault(name.split("/")[0], []).append(name)
    twins = [name for name in headers if (tests / name).with_name(pathlib.Path(name).stem + "_test.cpp").exists()]
    lengths = {name: len(text.splitlines()) for name, text in headers.items()}
    outside = [name for name in headers if name.split("/")[0] not in WAITING]
    most = max(folders, key=lambda folder: len(folders[folder]))
    yield "headers", len(headers)
    yield f"headers outside {', '.join(WAITING)}", len(outside)
    yield "files with tests (*_test.cpp)", len(cases)
    yield "lines of code in include/", sum(map(code_lines, headers.values()))
    yield "lines of code in tests/", sum(map(code_lines, programs.values()))
    yield "median and longest header", f"{statistics.median(lengths.values()):.0f}, {max(lengths.values())}"
    yield "median and longest file with tests", (
        f"{statistics.median(len(programs[path].splitlines()) for path in cases):.0f}, "
        f"{max(len(programs[path].splitlines()) for path in cases)}")
    yield "names in the fullest folder", f"{len(folders[most])} ({most})"
    yield "names in each folder", ", ".join(f"{folder} {len(names)}" for folder, names in sorted(folders.items()))
    yield "longest chain of includes", longest_chain({name: INCLUDE.findall(text) for name, text in headers.items()})
    yield "headers with an exact twin test", len(twins)
    yield "spellings of manager types in tests", len(spellings_of_managers(programs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--compiler", help="also time the umbrella header with this compiler")
    given = parser.parse_args()
    for name, value in rows_of(given.root):
        print(f"| {name} | {value} |")
    if given.compiler:
        print(f"| user seconds of the umbrella, {given.compiler} | {user_seconds(given.root, given.compiler):.1f} |")


if __name__ == "__main__":
    main()
