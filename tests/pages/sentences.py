#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the pages of docs/policies quote from compilers and laws is said by the library.

    python3 tests/pages/sentences.py

Under "Common mistakes", `chunkmem: ...` stands in a header, `concept name` is defined in a header, and `"..."` stands
in a law of tests/conformance/.
"""
import re

import page

LEAST = 20


def text_of(folder):
    """All headers of a folder in one text. String literals that continue on the next line are put together."""
    return "".join(re.sub(r'"[ \n]+"', "", page.read(path)) for path in sorted(folder.rglob("*.hpp")))


def quotations_of(text):
    """Each quotation of a page as a pair: is it of a law, and the words to look for."""
    for span in re.findall(r"`([^`]+)`", re.sub(r"[ \n]+", " ", text)):
        if span.startswith("concept "):
            yield span, False, span + " ="
        elif span.startswith('"'):
            yield span, True, span
        elif span.startswith("chunkmem: "):
            yield span, False, span.removeprefix("chunkmem: ")  # most errors say it themselves


def main():
    root = page.arguments(__doc__).root
    headers, laws = text_of(root / "include/chunkmem"), text_of(root / "tests/conformance")
    missing, total = [], 0
    for path in page.pages(root, page.POLICIES):
        _, heading, mistakes = page.read(path).partition("## Common mistakes")
        if not heading and path.name != "index.md":
            missing.append(f"{path.name} has no common mistakes")
        for span, is_law, wanted in quotations_of(mistakes):
            total += 1
            if wanted not in (laws if is_law else headers):
                missing.append(f"{path.name}: {span}")
    if missing or total < LEAST:
        page.fail("pages", f"of {total} quotations (at least {LEAST} are wanted) these are said nowhere:", *missing)
    print(f"pages: {total} quotations are what the library says")


main()
