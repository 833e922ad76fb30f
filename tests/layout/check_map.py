#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/README.md names each folder of tests/, and each path that the page names exists.

    python3 tests/layout/check_map.py [<top of the tree>]
"""
import re

import tree

PATH = re.compile(r"`([a-z0-9_]+/[A-Za-z0-9_./]*)`")
NOT_OF_TESTS = ("include/", "build/")


def violations_of(root):
    """A sentence for each folder without a line, and for each path that is not there."""
    text = (root / "tests/README.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    violations = [f"tests/README.md has no line for tests/{folder}: write a line '| `{folder}/` | <what it tests> |'"
                  for folder in folders_of(root) if not any(line.startswith(f"| `{folder}/` |") for line in lines)]
    violations += [f"tests/README.md names {path}, and there is no tests/{path}"
                   for path in paths_on(text) if not (root / "tests" / path).exists()]
    return violations


def folders_of(root):
    """The folders of tests/ that have a file."""
    return sorted({path.split("/")[1] for path in tree.files_of(root)
                   if path.startswith("tests/") and path.count("/") > 1})


def paths_on(text):
    """The paths below tests/ that the page names."""
    return sorted(path for path in set(PATH.findall(text)) if not path.startswith(NOT_OF_TESTS))


def main():
    root = tree.root_of_arguments()
    tree.report("map", violations_of(root), f"tests/README.md names all of {len(folders_of(root))} folders")


if __name__ == "__main__":
    main()
