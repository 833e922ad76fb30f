#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that a page shows is the file that is compiled and run.

    python3 tests/pages/programs.py [--write]

The block ```cpp after `<!-- program: <file> -->` is that file, whole, without its line about the licence: a page has
one licence for all of it.
"""
import re

import page

MARK = "<!-- program: "
SHOWN = re.compile(r"(<!-- program: ([^ \n]+) -->\n\n```cpp\n)(.*?)```", re.DOTALL)


def main():
    given = page.arguments(__doc__, write=page.WRITE)
    checked = 0
    for path in page.pages(given.root, *page.README_AND_DOCS):
        short, text = path.relative_to(given.root), page.read(path)
        shown = SHOWN.findall(text)
        if len(shown) != text.count(MARK):
            page.fail("docs", f"{short} has a mark of a program that no block of C++ follows (an empty line, then ```cpp)")
        checked += len(shown)
        for head, name, block in shown:
            there = re.sub(r"\A// SPDX[^\n]*\n", "", page.read(given.root / name))
            if block != there and not given.write:
                page.fail("docs", f"{short} does not show {name} as it is (python3 tests/pages/programs.py --write)")
            text = text.replace(head + block, head + there)
        if given.write:
            page.write_if_changed(path, text)
    if not checked:
        page.fail("docs", "no page shows a program")
    print(f"docs: programs on pages are those of {checked} files")


main()
