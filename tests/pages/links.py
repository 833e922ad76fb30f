#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links and names of files in the README and the docs lead to something.

    python3 tests/pages/links.py

Checked are [text](path) and pictures, with their anchors, and names in backticks that begin with a folder of the tree.
"""
import re

import page

PAGES = ("*.md", "docs/*.md", page.POLICIES, "examples/*/README.md", "tests/README.md")
FENCE = re.compile(r"\n```[^`]*\n```")  # a lambda is no link
LINK = re.compile(r"\]\(([^) \n]+)\)")
NAME = re.compile(r"`((?:docs|tests|examples|bench|cmake|tools|include)/[a-zA-Z0-9_./-]*)`")
NAMES_WHAT_MAY_BE_ADDED = "CONTRIBUTING.md"


def anchors_of(path):
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ +(.*)$", page.read(path), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problem_of_link(path, link):
    """What is wrong with a link of a page, or None."""
    target, _, anchor = link.partition("#")
    leads_to = path.parent / target if target else path
    if not leads_to.exists():
        return link
    if anchor and anchor not in anchors_of(leads_to):
        return f"{link} (no such heading)"
    return None


def main():
    root = page.arguments(__doc__).root
    wrong, checked = [], 0
    for path in page.pages(root, *PAGES):
        short = str(path.relative_to(root))
        text = FENCE.sub("", page.read(path))
        links = [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]
        names = [] if short == NAMES_WHAT_MAY_BE_ADDED else NAME.findall(text)
        checked += len(links) + len(names)
        wrong += [f"{short}: {problem}" for link in links if (problem := problem_of_link(path, link))]
        wrong += [f"{short}: {name}" for name in names if not (root / name).exists()]
    if not checked:
        page.fail("links", "none was found")
    if wrong:
        page.fail("links", "these lead nowhere:", *dict.fromkeys(wrong))
    print(f"links: {checked} lead to something")


main()
