#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An object of all headers defines nothing that a second one would define too: each symbol is weak or local.

    python3 tests/headers/check_symbols.py nm object
"""
import subprocess
import sys


def strong_symbols(listed):
    """What `nm -P` lists with a capital letter: defined for all units, and not weak (V, W) or unique (u)."""
    return [name for name, kind, *_ in (line.split() for line in listed.splitlines()) if kind in "ABCDGRST"]


def main(nm, path):
    listed = subprocess.run([nm, "-P", "--defined-only", "--extern-only", path], check=True, text=True,
                            capture_output=True).stdout
    strong = strong_symbols(listed)
    print(*strong, sep="\n")
    if strong:
        sys.exit(f"{len(strong)} symbols of headers are in every unit that includes them: declare them inline")
    print("headers: no symbol of all of them is strong")


if __name__ == "__main__":
    main(*sys.argv[1:])
