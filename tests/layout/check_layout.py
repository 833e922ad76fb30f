#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tree keeps the rules of CONTRIBUTING.md and cmake/floors.txt.

    python3 tests/layout/check_layout.py [<top of the tree>]

Headers: names, includes, floors, the umbrella header. Tests: their tags, and what their oracles include. All sources:
their licence and the width of their lines.
Every violation is told, each with what to change.
"""
import pathlib
import re

import tree

STD_HEADERS = frozenset("""
    algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
    clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
    cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format forward_list fstream
    functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
    syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray
    variant vector version""".split())
# Headers of the system that a few lines need, inside of conditions.
SYSTEM_HEADERS = frozenset(("fcntl.h", "sys/file.h", "sys/mman.h", "sys/stat.h", "unistd.h"))
# The umbrella header reaches none of these: each costs a compilation much time.
COSTLY_HEADERS = frozenset(("thread", "chrono", "functional"))
COMPONENTS = frozenset(("cuda", "thrust", "nccl", "checkpoint", "json", "mpi", "dlpack"))
UMBRELLA = "chunkmem/chunkmem.hpp"
WIDTH = 120
LICENCE = "SPDX-License-Identifier: Apache-2.0"
HASH_SOURCES = (".cmake", "CMakeLists.txt", ".sh", ".py")  # their comments begin with #
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]", re.MULTILINE)
# A test case: its name, perhaps of several literals, and its first tag.
CASE = re.compile(r'^\w*TEST_CASE\w*\([^"]*(?:"(?:[^"\\]|\\.)*"\s*)+(?:,\s*"\[([^]]*)\])?', re.MULTILINE)


def folder_of(header):
    """chunkmem/core/bytes.hpp lies in core; chunkmem/fwd.hpp is a folder of its own."""
    return header.split("/")[1]


def floors_of(root):
    """The floor of each folder. Everybody may include fwd.hpp, and nobody chunkmem.hpp."""
    floors = {"fwd.hpp": -1, "chunkmem.hpp": 10}
    for line in (root / "cmake/floors.txt").read_text().splitlines():
        if line[:1].isdigit():
            floor, *folders = line.split()
            floors.update((folder, int(floor)) for folder in folders)
    return floors


class Headers:
    """All headers of a tree: their text, their includes, their floors and the components that they need."""

    def __init__(self, root):
        self.include = root / "include"
        found = [*self.include.rglob("chunkmem/**/*.hpp"), *self.include.rglob("chunkmem/**/*.cuh")]
        self.paths = sorted({str(path.relative_to(self.include)) for path in found})
        self.text = {path: (self.include / path).read_text(encoding="utf-8") for path in self.paths}
        self.includes = {path: INCLUDE.findall(text) for path, text in self.text.items()}
        self.floors = floors_of(root)
        self.components = {}
        opt_in = root / "cmake/opt_in_headers.txt"
        self.opt_in_lines = opt_in.read_text().splitlines() if opt_in.exists() else []
        for line in self.opt_in_lines:
            header, _, component = line.partition(" ")
            if component in COMPONENTS:
                self.components["chunkmem/" + header] = component

    def needs_component(self, header):
        """A header that needs a component, or nvcc, may include anything."""
        return header in self.components or header.endswith(".cuh")


def opt_in_violations(headers):
    """cmake/opt_in_headers.txt has lines `<folder>/<header>.hpp <component>` for headers that exist."""
    for line in headers.opt_in_lines:
        if not line or line.startswith("#"):
            continue
        header, _, component = line.partition(" ")
        if component not in COMPONENTS or not header.endswith(".hpp"):
            yield (f"opt-in: cmake/opt_in_headers.txt says {line}, write <folder>/<header>.hpp and one of "
                   + ", ".join(sorted(COMPONENTS)))
        elif "chunkmem/" + header not in headers.text:
            yield f"opt-in: cmake/opt_in_headers.txt names {header}, which is not there"


def floor_violations(headers):
    """cmake/floors.txt names the folders that exist, and no other."""
    folders = {folder_of(header) for header in headers.paths}
    for header in headers.paths:
        if folder_of(header) not in headers.floors:
            yield f"unknown folder: {header} lies in {folder_of(header)}, which cmake/floors.txt does not name"
    for folder in sorted(set(headers.floors) - folders - {"fwd.hpp", "chunkmem.hpp"}):
        yield f"empty floor: cmake/floors.txt names {folder}, which has no header: take the name out"


def name_violations(headers):
    """No two headers have one name, and each has #pragma once."""
    seen = {}
    for header in headers.paths:
        name = pathlib.PurePath(header).name
        if name in seen:
            yield f"duplicate name: {seen[name]} and {header}"
        seen.setdefault(name, header)
        if not re.search("^#pragma once$", headers.text[header], re.MULTILINE):
            yield f"no pragma: {header} lacks #pragma once"


def message_violations(headers):
    """Errors put `chunkmem: ` before a sentence that is no error_text."""
    for header in headers.paths:
        for found in re.finditer(r'(?:_error|out_of_memory)\{\s*"chunkmem: ', headers.text[header]):
            yield f"message: {header}:{headers.text[header].count(chr(10), 0, found.end()) + 1} says chunkmem twice"


def comment_violations(headers):
    """A tag of a comment has a name and a text: Doxygen, which is not on every machine, takes `@param a, @throws b` for an error."""
    for header in headers.paths:
        for found in re.finditer(r"///.*@t?param(?: +\w+)? *(?:[,;] *@|[,;]?$)", headers.text[header], re.MULTILINE):
            yield f"comment: {header}:{headers.text[header].count(chr(10), 0, found.start()) + 1} has a @param without a name or a text"


def include_violations(headers):
    """What each header may include."""
    for header in headers.paths:
        if folder_of(header) not in headers.floors:
            continue
        for mark, included in headers.includes[header]:
            if header == "chunkmem/core/version.hpp" and included in ("needs_c++20", "needs_exceptions"):
                continue  # never there: it ends a compilation as C++17, or without exceptions
            if mark == '"':
                yield f"quotes: {header} includes \"{included}\", write <chunkmem/...>"
            if folder_of(header) == "fwd.hpp" and included not in ("cstdint", "cstddef"):
                yield f"fwd.hpp includes {included}; only cstdint and cstddef are allowed there"
            if included.startswith("chunkmem/"):
                yield from own_include_violations(headers, header, included)
            elif mark == "<" and not headers.needs_component(header) and included not in STD_HEADERS | SYSTEM_HEADERS:
                yield (f"foreign: {header} includes <{included}>, not of the standard library, and "
                       "cmake/opt_in_headers.txt does not name it")


def own_include_violations(headers, header, included):
    """What a header may include of our own: lower floors, no detail of others, no component that it does not need."""
    folder, other = folder_of(header), folder_of(included)
    if not headers.needs_component(header) and headers.needs_component(included):
        yield f"opt-in: {header} includes {included}, which needs more than the standard library"
    if included not in headers.text:
        yield f"no such header: {header} includes {included}"
    elif other not in headers.floors:
        yield f"unknown folder: {header} includes {included}"
    elif other == folder:
        return
    elif headers.floors[other] > headers.floors[folder]:
        yield (f"upward include: {header} (floor {headers.floors[folder]}) includes {included} "
               f"(floor {headers.floors[other]})")
    elif headers.floors[other] == headers.floors[folder]:
        yield f"sideways include: {header} includes {included}, both on floor {headers.floors[folder]}"
    elif "/detail/" in included:
        yield f"foreign detail: {header} includes {included}"


def umbrella_violations(headers):
    """The umbrella header reaches the standard library, without the costly headers."""
    waiting, reached = [UMBRELLA], {UMBRELLA}
    while waiting:
        header = waiting.pop(0)
        for _, included in headers.includes.get(header, ()):
            if header == "chunkmem/core/version.hpp" and included in ("needs_c++20", "needs_exceptions"):
                continue
            if included.startswith("chunkmem/"):
                if included not in reached:
                    reached.add(included)
                    waiting.append(included)
            elif included in COSTLY_HEADERS:
                yield f"umbrella: chunkmem.hpp reaches <{included}> through {header}"
            elif included not in STD_HEADERS:
                yield f"umbrella: chunkmem.hpp reaches <{included}>, not of the standard library, through {header}"


def width_violations(root):
    """No line of a C++ file is wider than 120 columns. clang-format leaves long comments as they are."""
    for path in tree.cpp_files_of(root):
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > WIDTH:
                yield f"width: {path}:{number} has {len(line)} columns, wrap it at {WIDTH}"


def catch_violations(root):
    """Tests name Catch::Approx in full and match texts by ContainsSubstring. Version 2 of Catch2 also has Approx in the
    global namespace and Contains for texts, version 3 has neither."""
    for path in tree.cpp_files_of(root):
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"(?<![\w:])Approx\(", line):
                yield f"catch: {path}:{number} names Approx, write Catch::Approx"
            if re.search(r'\bContains\(\s*"', line):
                yield f"catch: {path}:{number} has Contains with a text, write ContainsSubstring"


def tag_violations(root):
    """The first tag of each test case is its folder, so that tags find tests as folders do."""
    for path in tree.cpp_files_of(root):
        parts = pathlib.PurePath(path).parts
        if parts[0] != "tests" or len(parts) != 3:
            continue  # tests/package/third_party/ are programs of others
        text = (root / path).read_text(encoding="utf-8")
        for case in CASE.finditer(text):
            if case[1] != parts[1]:
                has = f"has the first tag [{case[1]}]" if case[1] else "has no tag"
                yield f"tag: {path}:{text.count(chr(10), 0, case.start()) + 1} {has}, write [{parts[1]}] first"


def oracle_violations(root):
    """An oracle, `<name>_oracle.hpp`, computes what has to come without the library that it judges."""
    for path in tree.cpp_files_of(root):
        if path.endswith("_oracle.hpp"):
            for _, included in INCLUDE.findall((root / path).read_text(encoding="utf-8")):
                if included not in STD_HEADERS:
                    yield f"oracle: {path} includes {included}, and may include the standard library alone"


def licence_violations(root):
    """Each source says its licence in its first line; the line may follow `#!...` or `// expect: ...`."""
    for path in tree.files_of(root):
        mark = "//" if path.endswith(tree.CPP) else "#" if path.endswith(HASH_SOURCES) else None
        if mark:
            lines = (root / path).read_text(encoding="utf-8").splitlines()[:2]
            begins_otherwise = bool(lines) and lines[0].startswith(("#!", "// expect: "))
            if lines[begins_otherwise:][:1] != [f"{mark} {LICENCE}"]:
                yield f"licence: {path} lacks the line '{mark} {LICENCE}', write it in line {begins_otherwise + 1}"


def violations_of(root):
    """A sentence for each violation."""
    headers = Headers(root)
    if not headers.paths:
        return [f"no headers in {headers.include}/chunkmem"]
    rules = (opt_in_violations, floor_violations, name_violations, message_violations, comment_violations,
             include_violations, umbrella_violations)
    found = [violation for rule in rules for violation in rule(headers)]
    for rule in (width_violations, catch_violations, tag_violations, oracle_violations, licence_violations):
        found += rule(root)
    return found


def main():
    root = tree.root_of_arguments()
    tree.report("layout", violations_of(root), f"{len(Headers(root).paths)} headers and {len(tree.files_of(root))} files keep the rules")


if __name__ == "__main__":
    main()
