#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/README.md names each folder of tests/, and each path that the page names exists.

    python3 tests/layout/check_map.py [<top of the tree>]
"""
import re

import tree

PATH = re.compile(r"`([a-z0-9_]+/[A-Za-z0-9_./]*)`")


def main():
    root = tree.root_of_arguments()
    tests = root / "tests"
    text = (tests / "README.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    folders = {path.split("/")[1] for path in tree.files_of(root) if path.startswith("tests/") and path.count("/") > 1}
    violations = [f"tests/README.md has no line for tests/{folder}: write a line '| `{folder}/` | <what it tests> |'"
                  for folder in sorted(folders) if not any(line.startswith(f"| `{folder}/` |") for line in lines)]
    named = set(PATH.findall(text)) - {"include/chunkmem/"}
    violations += [f"tests/README.md names {path}, and there is no tests/{path}"
                   for path in sorted(named) if not (tests / path).exists() and not path.startswith("build/")]
    tree.report("map", violations, f"{len(folders)} folders and {len(named)} paths of tests/README.md are there")


main()
