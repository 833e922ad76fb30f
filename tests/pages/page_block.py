#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes one block ```cpp of a page to a file, so that a test compiles the block as it stands.

    python3 tests/pages/page_block.py --page docs/errors.md --text WORDS --out FILE    the block that has these words
    python3 tests/pages/page_block.py --page docs/errors.md --expect COUNT             the page has COUNT blocks

A block that is a file of examples/ is not counted: docs.programs compares it with the file.
"""
import pathlib
import re

import page


def write_block(path, name, words, out):
    text = page.read(path)
    at = text.find(words)
    begin = text.rfind("```cpp\n", 0, at) + len("```cpp\n")
    if at == -1 or begin < len("```cpp\n"):
        page.fail("pages", f"{name} has no block with {words} (tests/pages/register.cmake asks for the block)")
    line = text.count("\n", 0, begin) + 1
    page.write_if_changed(out, f'#line {line} "{path}"\n' + text[begin:text.find("```", begin)])


def expect_blocks(path, name, count):
    text = page.read(path)
    blocks = len(re.findall(r"^```cpp", text, re.MULTILINE))
    programs = len(re.findall(r"^<!-- program: examples/", text, re.MULTILINE))
    if blocks != count + programs:
        page.fail("pages", f"{name} has {blocks} blocks of C++, and {count + programs} are compiled (tests/pages/register.cmake)")


def main():
    given = page.arguments(__doc__, page={"required": True}, text={}, out={"type": pathlib.Path}, expect={"type": int})
    path = given.root / given.page
    if given.expect is None:
        write_block(path, given.page, given.text, given.out)
    else:
        expect_blocks(path, given.page, given.expect)


main()
