#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands on the pages name files, presets, targets, programs, options and tests that exist.

    python3 tests/pages/commands.py

Commands are lines of code blocks and words in backticks that begin with one of STARTS, or with a program of ours, and the commands of
recorded figures (bench/results). Nothing is run: presets
are those of CMakePresets.json, targets and tests are read in the CMake files, and the options of a program are in the strings of its
sources.
"""
import json
import re
import shlex

import page

PAGES = (*page.README_AND_DOCS, "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "examples/*/README.md", "docs/site/*.md", "docs/site/api/*.md")
STARTS = ("cmake", "ctest", "sh", "python3", "mpirun", "sudo", "g++", "clang-format-16", "bash")
FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
OURS = re.compile(r"^(?:chunkmem/)?((?:docs|tests|examples|bench|cmake|tools|include)/[\w./*-]*)$")
PROGRAM = re.compile(r"^(?:\./)?build/(\w+)/bin/([\w.]+)$")
PLACEHOLDER = re.compile(r"[<>$]|\.\.\.")
WORDS_OF_SHELLS = re.compile(r"\s(?:&&|\|\||[|;>]|2>)\s|;\s")


class Tree:
    """What commands may name."""

    def __init__(self, root):
        self.root = root
        presets = json.loads(page.read(root / "CMakePresets.json"))
        self.presets = {it["name"] for it in presets["configurePresets"] if not it.get("hidden")}
        files = [root / "CMakeLists.txt", *(path for top in ("cmake", "tests", "examples", "bench") for kind in ("*.cmake", "CMakeLists.txt")
                                            for path in (root / top).rglob(kind))]
        text = "\n".join(re.sub(r"^\s*#.*$", "", page.read(path), flags=re.M) for path in files)
        self.options = set(re.findall(r"\b(CHUNKMEM_\w+)", text))
        folders = {path.parent.name for path in root.glob("tests/*/*_test.cpp")}
        folders |= {path.parent.parent.name for path in root.glob("examples/*/tests/*_test.cpp")}
        self.targets = set(re.findall(r"(?:add_executable|add_custom_target|chunkmem_program|add_library|chunkmem_\w*program)\(\s*([\w.]+)", text))
        self.targets |= {f"test_{it}" for it in folders} | {"install", "all"}
        self.targets |= {path.stem for pattern in ("bench/*/*_bench.c*", "examples/*.cpp") for path in root.glob(pattern)}
        parts = [*re.findall(r"chunkmem_part\(\s*(\w+)", text), *re.findall(r"chunkmem_find_(\w+)\(", text)]
        self.targets |= {f"test_{folder}.{part}" for folder in folders for part in parts}
        self.tests = {it for it in re.findall(r"(?:chunkmem_test|chunkmem_skipped_test|add_test\(NAME|chunkmem_\w+_test)\(?\s*([\w.${}]+)", text)}
        self.tests |= folders | {f"{folder}.{part}" for folder in folders for part in parts} | {f"{it}.slow" for it in folders}
        self.labels = set(" ".join(re.findall(r"(?:LABELS|chunkmem_labels) ([\w ]+)", text)).split())
        self.programs = {path.parent.name for path in root.glob("examples/*/CMakeLists.txt")}
        self.tests |= {f"bench.{re.sub('_bench$', '', path.stem)}" for path in root.glob("bench/*/*_bench.c*")}

    def has_test(self, expression):
        names = [re.sub(r"\$\{\w+\}", "x", it) for it in self.tests if not it.startswith("$")]
        if any(re.search(expression, it) for it in names):
            return True
        plain = expression.strip("^$")  # a name with a variable in it, such as consumers.${way}
        return any(re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", r"[\\w.]+", re.escape(it)), plain) for it in self.tests if re.match(r"\w.*\$", it))

    def strings_of(self, program):
        """The strings of the sources of a program, or None."""
        places = [self.root / "examples" / program, *self.root.glob(f"bench/*/{program}.c*"), self.root / f"examples/{program}.cpp"]
        places = [it for it in places if it.exists()]
        if (own := self.root / "examples" / program / "CMakeLists.txt").exists():
            places += [own.parent.parent / it for it in re.findall(r"SOURCE_DIR\}/\.\./(\w+)\"", page.read(own))]
        if not places:
            return None
        files = [file for it in places for file in ([it] if it.is_file() else it.rglob("*.[ch]*"))] + list(self.root.glob("examples/*.hpp"))
        return " ".join(found for file in files for found in re.findall(r'"((?:[^"\\\n]|\\.)*)"', page.read(file)))


def commands_of(text, programs=()):
    """The commands of a page, each as one line. A program of the examples may stand without its folder in front of an option."""
    lines = []
    for block in FENCE.findall(text):
        lines += re.sub(r"\\\n\s*", " ", block).splitlines()
    lines += INLINE.findall(FENCE.sub("", text))
    for line in lines:
        line = re.sub(r"^\$ ", "", re.sub(r"(^|\s)# .*$|(^|\s)#$", "", line).strip())
        for command in WORDS_OF_SHELLS.split(line):
            words = command.split()
            if len(words) > 1 and (words[0] in STARTS or PROGRAM.match(words[0])) or len(words) == 1 and PROGRAM.match(words[0]):
                yield command.strip()
            elif len(words) > 1 and words[0] in programs and words[1].startswith("--"):
                yield f"build/demo/bin/{command.strip()}"


def options_of_script(tree, file):
    """The options that a script takes: words of its text, and those that the module of the pages makes of names."""
    text = page.read(tree.root / file)
    return set(re.findall(r"--[a-z][\w-]*", text)) | {f"--{it}" for it in re.findall(r"\b(\w+)=page\.WRITE|arguments\(__doc__, (\w+)=", text) for it in it}


def problems_of(tree, command):
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    while words and (words[0] in ("sudo", "-n", "mpirun") or words[0].isdigit() or re.match(r"^[A-Z_]+=", words[0])):
        words = words[1:]
    if not words:
        return
    first = words[0]
    for at, word in enumerate(words):
        value = words[at + 1] if at + 1 < len(words) else ""
        if (found := OURS.match(word)) and not PLACEHOLDER.search(word):
            path = found[1]
            if not (list(tree.root.glob(path)) if "*" in path else (tree.root / path).exists()):
                yield f"there is no {path}"
        if found := re.match(r"^-D([A-Z]\w+)", word):
            if found[1].startswith("CHUNKMEM_") and found[1] not in tree.options:
                yield f"there is no option {found[1]}"
        if word == "--preset" or word == "--workflow":
            if re.match(r"^\w+$", value) and value not in tree.presets:
                yield f"there is no preset {value}"
        if found := re.match(r"^build/(\w+)", word):
            if found[1] not in tree.presets and found[1] != "site":
                yield f"build/{found[1]} is the folder of no preset"
        if word == "--target" and first == "cmake" and not PLACEHOLDER.search(value) and value not in tree.targets:
            yield f"there is no target {value}"
        if word == "-L" and first == "ctest" and not PLACEHOLDER.search(value) and value.strip("^$") not in tree.labels:
            yield f"there is no label {value}"
        if word == "-R" and first == "ctest" and not PLACEHOLDER.search(value.rstrip("$")) and not tree.has_test(value):
            yield f"there is no test {value}"
    options = [re.sub(r"=.*", "", word) for word in words[1:] if re.match(r"^--[a-z]", word)]
    if found := PROGRAM.match(first):
        program = found[2]
        if program not in tree.targets:
            yield f"there is no program {program}"
        elif (strings := tree.strings_of(program)) is not None:
            yield from (f"{program} has no option {it}" for it in options if not re.search(re.escape(it) + r"(?![\w-])", strings))
    elif first in ("sh", "bash", "python3"):
        file = next((word for word in words[1:] if not word.startswith("-")), "")
        if OURS.match(file) and (tree.root / file).is_file():
            if file in ("tests/run.sh", "examples/run.sh"):
                given = [word for word in words[2:] if not word.startswith("-")]
                yield from (f"there is no preset {it}" for it in given if not PLACEHOLDER.search(it) and it not in tree.presets)
                file = "cmake/bootstrap.sh"
            known = options_of_script(tree, file)
            yield from (f"{file} has no option {it}" for it in options if it not in known)


def main():
    root = page.arguments(__doc__).root
    tree = Tree(root)
    wrong, checked = [], 0
    pages = [(path, page.read(path)) for path in page.pages(root, *PAGES)]
    records = [(path, "".join(f"`{it['command']}` " for it in json.loads(page.read(path)) if "command" in it))
               for path in page.pages(root, "bench/results/*.json")]
    for path, text in pages + records:
        for command in commands_of(text, tree.programs):
            checked += 1
            wrong += [f"{path.relative_to(root)}: `{command}`: {problem}" for problem in problems_of(tree, command)]
    if not checked:
        page.fail("commands", "no page has one")
    if wrong:
        page.fail("commands", "these cannot be run:", *dict.fromkeys(wrong))
    print(f"commands: {checked} name what exists")


main()
