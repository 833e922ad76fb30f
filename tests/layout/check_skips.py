#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A test that wants a tool is skipped with a reason where the tool is not there; it is never absent without a word.

    python3 tests/layout/check_skips.py [<top of the tree>]

Looked at are `if(...)` blocks of CMake that register tests and ask for a program that was looked for, or for nvcc: each says in another branch
what is skipped (chunkmem_skipped_test, or SKIPPED), or what is left out of a test that runs all the same (LEFT OUT).
"""
import re

import tree

OPENS, MIDDLE, CLOSES = re.compile(r"^\s*if\((.*)\)"), re.compile(r"^\s*else(?:if\((.*)\)|\(\))"), re.compile(r"^\s*endif\(")
SAID = re.compile(r"chunkmem_skipped_test\(|SKIPPED|LEFT OUT|message\(FATAL_ERROR")
REGISTERS = re.compile(r"^\s*(?:chunkmem_test|add_test)\(", re.M)


def tools_of(text):
    """The variables of programs that the file looks for, and that of nvcc, which all files share."""
    found = re.findall(r"find_program\(\s*(\w+)(?![^)]*REQUIRED)", text)
    return {*found, "chunkmem_nvcc"}


def blocks_of(lines):
    """(line, conditions, text of all branches) of each if."""
    open_ones = []
    for number, line in enumerate(lines, 1):
        if found := OPENS.match(line):
            open_ones.append([number, [found[1]], []])
        elif (found := MIDDLE.match(line)) and open_ones:
            open_ones[-1][1].append(found[1] or "")
        for block in open_ones:
            block[2].append(line)
        if CLOSES.match(line) and open_ones:
            number, conditions, text = open_ones.pop()
            yield number, conditions, "\n".join(text)


def violations_of(root):
    violations = []
    for path in tree.files_of(root):
        if not path.endswith((".cmake", "/CMakeLists.txt")):
            continue
        text = (root / path).read_text(encoding="utf-8")
        tools = tools_of(text)
        for number, conditions, block in blocks_of(text.splitlines()):
            asked = sorted({word for it in conditions for word in re.findall(r"\w+", it)} & tools)
            if asked and REGISTERS.search(block) and not SAID.search(block):
                violations.append(f"{path}:{number} registers a test only with {', '.join(asked)}: say in an else() what is skipped "
                                  "(chunkmem_skipped_test)")
    return violations


if __name__ == "__main__":
    tree.report("skips", violations_of(tree.root_of_arguments()), "each test that wants a tool is skipped with a reason")
