#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No file of the tree names a place or a tool that only its makers have.

    python3 tests/layout/check_words.py [<top of the tree>]
"""
import tree

# In pieces, or this file would find itself.
PRIVATE = ["".join(pieces) for pieces in (("/wo", "rk/"), ("../sha", "red"), ("fa", "rm-"), ("suba", "gent"))]


def violations_of(root):
    """A sentence for each private word in each file."""
    violations = []
    for path in tree.files_of(root):
        content = (root / path).read_bytes()
        violations += [f"{path} contains {word}: take the word out" for word in PRIVATE if word.encode() in content]
    return violations


def main():
    root = tree.root_of_arguments()
    files = tree.files_of(root)
    if not files:
        tree.report("words", [f"no file was found in {root}"], "")
    tree.report("words", violations_of(root), f"{len(files)} files name nothing private")


if __name__ == "__main__":
    main()
