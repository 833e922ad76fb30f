#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one program of the examples in docs/policies, docs/integrating.md, docs/interop.md,
docs/pipelines.md and docs/recipes.md.

    python3 tests/pages/extract.py --out FILE.cpp [--libtorch]

Each block ```cpp of a page stands in a namespace of that page. What stands under the heading "## LibTorch" is a program
of its own, made with --libtorch.
"""
import pathlib
import re

import page

PAGES = ("docs/integrating.md", "docs/interop.md")
WITHOUT_LIBTORCH = (page.POLICIES, "docs/pipelines.md", "docs/recipes.md")
BLOCK = re.compile(r"```cpp\n(.*?)```", re.DOTALL)
INCLUDE = re.compile(r"#include <[^>]+>\n")
SECTION = re.compile(r"^## LibTorch\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
HEAD = """#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <vector>

namespace cm = chunkmem;
"""


def blank(text):
    """As many lines, without content."""
    return "\n" * text.count("\n")


def part_of(text, is_libtorch):
    """The section on LibTorch, or all else. Lines that are left out are empty, so that numbers of lines stay."""
    section = SECTION.search(text)
    begin, end = section.span() if section else (len(text), len(text))
    if is_libtorch:
        return blank(text[:begin]) + text[begin:end]
    return text[:begin] + blank(text[begin:end]) + text[end:]


def blocks_of(path, text):
    """The includes of all blocks of a page, and the blocks with their places."""
    includes, body = "", ""
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1)) + 1
        includes += "".join(INCLUDE.findall(block[1]))
        body += f'#line {line} "{path}"\n' + INCLUDE.sub("\n", block[1])
    return includes, body


def main():
    given = page.arguments(__doc__, out={"type": pathlib.Path, "required": True}, libtorch={"action": "store_true"})
    all_includes, all_bodies = "", ""
    for path in page.pages(given.root, *(() if given.libtorch else WITHOUT_LIBTORCH), *PAGES):
        includes, body = blocks_of(path, part_of(page.read(path), given.libtorch))
        if not body and path.stem != "index":
            page.fail("pages", f"{path} has no example")
        if body:
            all_includes += includes
            all_bodies += f"namespace page_{path.stem} {{\n{body}}}  // namespace page_{path.stem}\n"
    page.write_if_changed(given.out, "// Written by tests/pages/extract.py from docs.\n" + all_includes + HEAD + all_bodies)


main()
