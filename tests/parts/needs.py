#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nothing that a build makes by default includes a header that is not there.

    python3 tests/parts/needs.py <top of the tree> <build made with ninja> <header...>

Sources are those of the target `all`. Where includes lead to such a header, whatever #if is around them, the
preprocessor of the build has the last word.
"""
import functools
import json
import pathlib
import re
import shlex
import subprocess
import sys

TOP, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
MISSING = set(sys.argv[3:])


@functools.cache
def includes_of(path):
    return re.findall(r'^#include [<"]([^>"]+)[>"]', path.read_text(encoding="utf-8"), re.MULTILINE)


def found(name, beside):
    places = (pathlib.Path(name), beside / name, *(TOP / folder / name for folder in ("include", "tests", "bench", "examples/gpt")))
    return next((place for place in places if place.is_absolute() and place.is_file()), None)


def way_to_missing(source):
    """The files from a source to a header that is missing, or nothing."""
    ways, seen = [[source]], {source}
    while ways:
        way = ways.pop()
        for name in includes_of(way[-1]):
            if name in MISSING:
                return [*way, name]
            path = found(name, way[-1].parent)
            if path and path not in seen:
                seen.add(path)
                ways.append([*way, path])
    return []


def preprocesses(source):
    words = shlex.split(COMMANDS[source]["command"])
    where = words.index("-o")
    words = words[:where] + words[where + 2:]
    if "-include" in words:  # what is precompiled
        where = words.index("-include")
        words = words[:where] + words[where + 2:]
    words = [word for word in words if word != "-c"]
    done = subprocess.run([*words, "-w", "-M", "-MF", "/dev/null"], cwd=COMMANDS[source]["directory"], capture_output=True,
                          check=False)
    return done.returncode == 0


COMMANDS = {pathlib.Path(each["file"]): each
            for each in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))}
inputs = subprocess.run(["ninja", "-C", BUILD, "-t", "inputs", "all"], capture_output=True, text=True, check=True).stdout
sources = [path for path in (BUILD / line.strip() for line in inputs.splitlines()) if path in COMMANDS and path.is_file()]
ways = {source: way for source in sources if (way := way_to_missing(source))}
wrong = [way for source, way in ways.items() if not preprocesses(source)]
for way in wrong:
    print(" -> ".join(str(step).removeprefix(f"{TOP}/") for step in way))
if wrong or len(sources) < 20:
    sys.exit(f"{len(wrong)} of {len(sources)} sources include what is missing (give their part a reason in chunkmem_why_not)")
