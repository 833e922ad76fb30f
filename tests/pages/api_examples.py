#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public function that docs/site/api lists has an example in its comment, and tests/pages/*_examples.cpp run it.
Each comment of such a function begins with a brief that says on its own what the function does.

    python3 tests/pages/api_examples.py                 counts the functions without one, and names them
    python3 tests/pages/api_examples.py --out FOLDER    writes <class>.<function>.<number>.inc for each example

An example is a block of lines in a comment of ///, indented by five spaces. The number counts the examples of overloads
in the order of the header, from 1.
"""
import json
import os
import pathlib
import re

import page

CALLS = re.compile(r"```\{calls\} (\S+)\n(.*?)```", re.DOTALL)
CLASSES = {"chunkmem::manager": ["manager/basic_manager.hpp"]}  # headers of classes whose calls the pages list
USED = re.compile(r'#include "([\w.]+)[.]inc"')
ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.DOTALL)
TYPE = re.compile(r"(?:extern|class|struct|enum|concept|using|namespace|#)\b")
NAME = re.compile(r"(\w+)\s*\(")
NO_BRIEF = re.compile(r"\Z|@|    |(?:The same|As)\b(?! number)")  # pages show each overload alone


def headers_of(root, owner):
    """A namespace has the headers of its folder; the top namespace has those of all folders."""
    if owner in CLASSES:
        return [root / "include/chunkmem" / name for name in CLASSES[owner]]
    folder = root / "include/chunkmem" / owner.removeprefix("chunkmem").removeprefix("::")
    return sorted(folder.rglob("*.hpp"))


def without_template(text):
    """A declaration behind its template parameters and their requirements."""
    text = ATTRIBUTE.sub(" ", text).lstrip()
    while text.startswith("template"):
        depth, at = 0, text.index("<")
        while True:
            depth += {"<": 1, ">": -1}.get(text[at], 0)
            at += 1
            if depth == 0:
                break
        text = re.sub(r"\A\s*requires\b[^\n]*\n", "", text[at:]).lstrip()
    return text


def declared_below(lines, index):
    """The name of the function that is declared from this line on, or an empty text."""
    text = "\n".join(lines[index:index + 12]).split("\n\n")[0]
    text = without_template(text)
    found = None if TYPE.match(text) else NAME.search(text)
    return found[1] if found else ""


def example_in(comment):
    """The lines of the blocks that stand behind an empty line; those of a tag that goes on stand behind the tag."""
    code, inside = [], False
    for before, line in zip(["", *comment], comment):
        inside = line.startswith("     ") and (inside or not before.strip())
        if inside:
            code.append(line[5:])
        elif not line.strip():
            inside = bool(code)
    return "\n".join(code)


def examples_of(header):
    """{function: [(its example, is there a brief)]} of a header; an empty text stands for a comment without an example."""
    lines = page.read(header).splitlines()
    indent = ""  # functions of a namespace stand at the margin
    if header.name in {pathlib.Path(name).name for names in CLASSES.values() for name in names}:
        lines, indent = public_part(lines), "  "
    found, index = {}, 0
    while index < len(lines):
        begin = index
        while index < len(lines) and lines[index].startswith(indent + "///"):
            index += 1
        if index == begin:
            index += 1
            continue
        comment = [line.lstrip()[3:] for line in lines[begin:index]]
        name = declared_below(lines, index)
        if name:
            found.setdefault(name, []).append((example_in(comment), not NO_BRIEF.match(comment[0].removeprefix(" "))))
    return found


def public_part(lines):
    """The public members of the class of a header."""
    begin = next(index for index, line in enumerate(lines) if line.startswith("class ") and line.endswith("{"))
    return lines[begin:lines.index(" private:", begin)]


def listed(root):
    """(owner, function) of each call that a page of the API lists, and of each public call of a class of CLASSES."""
    for owner in CLASSES:
        for header in headers_of(root, owner):
            yield from ((owner, name) for name in examples_of(header))
    for path in page.pages(root, "docs/site/api/*.md"):
        for owner, names in CALLS.findall(page.read(path)):
            for name in names.split():
                yield owner, name


def main():
    given = page.arguments(__doc__, out={"type": pathlib.Path})
    without, without_brief, written, places = [], [], {}, {}
    for owner, name in sorted(set(listed(given.root))):
        if owner not in places:
            places[owner] = [examples_of(header) for header in headers_of(given.root, owner)]
        comments = [comment for header in places[owner] for comment in header.get(name, [])]
        codes = [code for code, _ in comments if code]
        if not all(has_brief for _, has_brief in comments):
            without_brief.append(f"{owner}::{name}")
        if not codes:
            without.append(f"{owner}::{name}")
        for number, code in enumerate(codes, 1):
            written[f"{owner.split('::')[-1]}.{name}.{number}"] = code
    if given.out:
        for name, code in written.items():
            page.write_if_changed(given.out / f"{name}.inc", code + "\n")
        return
    programs = sorted((given.root / "tests/pages").glob("*_examples.cpp"))
    if without_brief:
        page.fail("api", "these comments do not begin with a sentence that says what the function does:", *without_brief)
    used = {name for path in programs for name in USED.findall(page.read(path))}
    if set(written) != used:
        page.fail("api", "tests/pages/*_examples.cpp include other examples than the comments have:",
                  *(f"{name} is in no test" for name in sorted(set(written) - used)),
                  *(f"{name} is in no comment" for name in sorted(used - set(written))))
    if "CHUNKMEM_FIGURES" in os.environ:
        figure = {"name": "docs.public_functions_without_example", "value": len(without), "unit": "functions that the API pages list",
                  "relation": "==", "bound": 0, "command": "ctest -R docs.api_examples"}
        page.write_if_changed(pathlib.Path(os.environ["CHUNKMEM_FIGURES"]) / "api_examples.json", json.dumps([figure]) + "\n")
    print(f"api: {len(written)} examples, and {len(without)} listed functions without one", *without, sep="\n  ")


main()
