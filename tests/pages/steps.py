#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of steps in docs/training.md is the one that a test makes from what compiles.

    python3 tests/pages/steps.py
"""
import re

import page

TEST = "tests/sharding/step_kinds_test.cpp"
PAGE = "docs/training.md"


def main():
    root = page.arguments(__doc__).root
    table = re.search(r'R"\((\| a manager .*?)\)"', page.read(root / TEST), re.DOTALL)
    if table is None:
        page.fail("steps", f"{TEST} has no table any more")
    if table[1] not in page.read(root / PAGE):
        page.fail("steps", f"{PAGE} has another table of steps than {TEST}:", table[1])
    print(f"steps: {table[1].count(chr(10))} owners of steps have the times and places that compile")


if __name__ == "__main__":
    main()
