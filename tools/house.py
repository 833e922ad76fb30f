#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How large the house is: headers, tests, lines, names in each folder, chains of includes, twins, types of managers.

    python3 tools/house.py [<top of a tree> ...] [--compiler g++]

Two trees are two columns of one table. For a tree of before: `git worktree add ../before <commit>` and
`python3 tools/house.py ../before .`. With a compiler the table also has user seconds: of the umbrella header, and of an
example on one rank and on many, each the median of three, in which the trees take turns.

An implementation is a header that defines what a trainer calls, a function with its body or a class with its members,
in a folder and under a name of IMPLEMENTATIONS. A short way that calls another one counts too.
"""
import argparse
import functools
import pathlib
import re
import resource
import statistics
import subprocess

from count_code import code_of

FILES = ("checkpoint", "pipeline", "sharding")
IMPLEMENTATIONS = {  # folders, classes, functions
    "pin": (("manager", "sharding"), r"(\w+_)?pin", r""),
    "gradient": (("manager", "sharding"), r"(\w+_)?gradients?", r"gradient"),
    "step": (("optimizer", "pipeline", "sharding"), r"\w+_step", r"step"),
    "save": (FILES, r"\w+_save", r"save(_\w+)?"),
    "load": (FILES, r"\w+_load", r"load(_\w+)?"),
    "import": (FILES, r"\w+_import", r"import_\w+"),
}
PLAN = r"(\w+_)?plan"
CLASS = re.compile(r"\b(?:class|struct)\s+(\w+)(?:\s+final)?\s*(?::[^;{]*)?\{")
FUNCTION = re.compile(r"(?<=[\w>&*])\s+(\w+)\s*\(")
NO_TYPE = re.compile(r"\b(?:return|else|throw|new|co_\w+)$")
BODY = re.compile(r"(?:\s|const\b|noexcept\b|&|requires\s*\([^{;]*\)|try\b|->[^{;]*)*\{")
TRAINERS = {"one rank": "first_training.cpp", "ranks": "ranks_threads.cpp"}  # of examples/

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


def user_seconds(root, compiler, text, *flags):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([compiler, "-std=c++20", f"-I{root}/include", f"-I{root}/examples", *flags, "-o", "/dev/null",
                    "-x", "c++", "-"], check=True, input=text, text=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def rows_of_compiler(roots, compiler):
    """Their seconds, in which the trees take turns."""
    def row(name, text_of, *flags):
        seconds = [[user_seconds(root, compiler, text_of(root), *flags) for root in roots] for _ in range(3)]
        return name, [f"{statistics.median(each):.1f}" for each in zip(*seconds)]
    yield row(f"user seconds of the umbrella, {compiler}", lambda _: "#include <chunkmem/chunkmem.hpp>\n",
              "-fsyntax-only")
    for ranks, name in TRAINERS.items():
        for level in ("-O0", "-O2"):
            yield row(f"user seconds of a trainer of {ranks}, {compiler} {level}",
                      lambda root, name=name: (root / "examples" / name).read_text(encoding="utf-8"), level, "-c")


def functions_in(code):
    """Names of functions that have a body here."""
    for match in FUNCTION.finditer(code):
        depth, end = 0, match.end() - 1
        for end in range(match.end() - 1, len(code)):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            if depth == 0:
                break
        if BODY.match(code, end + 1) and not NO_TYPE.search(code, max(0, match.start() - 20), match.start()):
            yield match[1]


def implementations(codes):
    """How many headers define it, for each of IMPLEMENTATIONS."""
    names = {header: (CLASS.findall(code), list(functions_in(code))) for header, code in codes.items()}
    for what, (folders, *patterns) in IMPLEMENTATIONS.items():
        yield what, sum(header.split("/")[0] in folders and
                        any(re.fullmatch(pattern, name) for pattern, found in zip(patterns, both) for name in found)
                        for header, both in names.items())


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
    for folder in ("include", "tests", "examples", "bench"):
        sources = texts_below(root / folder, ".cpp", ".hpp", ".cu", ".cuh")
        yield f"lines of code in {folder}/", sum(map(code_lines, sources.values()))
    codes = {header: code_of(text) for header, text in headers.items()}
    for what, count in implementations(codes):
        yield f"headers that define a {what}".replace("a import", "an import"), count
    yield "types named plan", sum(bool(re.fullmatch(PLAN, name)) for code in codes.values()
                                  for name in CLASS.findall(code))
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
    parser.add_argument("roots", nargs="*", type=pathlib.Path, default=[pathlib.Path(__file__).resolve().parents[1]],
                        metavar="root", help="the top of a tree")
    parser.add_argument("--compiler", help="also time headers and trainers with this compiler")
    given = parser.parse_args()
    roots = [root.resolve() for root in given.roots]
    rows = [(row[0][0], [str(value) for _, value in row]) for row in zip(*map(rows_of, roots))]
    if given.compiler:
        rows += rows_of_compiler(roots, given.compiler)
    for name, values in rows:
        print(f"| {name} | {' | '.join(values)} |")


if __name__ == "__main__":
    main()
