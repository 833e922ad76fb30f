#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What objects and programs of CUDA hold: python3 architectures.py [--figure FOLDER] --want "80-real;90-real;100" FILE...

An object has one container for each of its units, in which entries follow each other: machine code (kind 2) or PTX (kind 1) for one
architecture. cuobjdump lists the same. `100` wants both, `100-real` machine code, `100-virtual` PTX. Each container is
held against what is wanted. Status 1 where one lacks something, or where no file has any.
"""
import argparse
import json
import pathlib
import struct
import sys

CONTAINER = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # its mark, version and size of header
KINDS = {1: "PTX", 2: "code"}


def containers(content):
    """Of each container, its entries: (kind, architecture)."""
    at = content.find(CONTAINER)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", content, at)
        entry, end, found = at + header, min(at + header + size, len(content) - 32), set()
        while entry < end:
            kind, _, own_header, own_size = struct.unpack_from("<HHIQ", content, entry)
            found.add((KINDS.get(kind, f"kind {kind}"), struct.unpack_from("<I", content, entry + 28)[0]))
            entry += max(own_header + own_size, 32)
        yield found
        at = content.find(CONTAINER, end)


def wanted(text):
    for one in filter(None, text.split(";")):
        number, _, kind = one.partition("-")
        yield from [(what, int(number)) for what in KINDS.values() if kind in ("", {"PTX": "virtual", "code": "real"}[what])]


def main():
    parser = argparse.ArgumentParser(description="what objects and programs of CUDA hold")
    parser.add_argument("--want", required=True)
    parser.add_argument("--figure", type=pathlib.Path)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    given = parser.parse_args()
    if not all(one.partition("-")[0].isdigit() for one in filter(None, given.want.split(";"))):
        print(f"SKIPPED: {given.want} names no architectures by number")
        return 4
    want = set(wanted(given.want))
    missing = with_code = 0
    for path in given.files:
        units = list(containers(path.read_bytes()))
        if not units:
            print(f"{path.name}: no device code")
            continue
        with_code += 1
        held = set.intersection(*units)
        lacks = sorted(want - held)
        missing += len(lacks)
        says = ", ".join(f"{what} {number}" for what, number in sorted(held, key=lambda it: (it[1], it[0]))) or "nothing in common"
        print(f"{path.name}: {len(units)} units, each with {says}"
              + (f"; WITHOUT {', '.join(f'{what} {number}' for what, number in lacks)}" if lacks else ""))
    if given.figure:
        (given.figure / "architectures.json").write_text(json.dumps([{
            "name": "cuda.architectures_missing", "value": missing, "unit": "architectures", "relation": "==", "bound": 0,
            "command": "ctest --preset test -R cuda.architectures"}]), encoding="utf-8")
    return 1 if missing or not want or not with_code else 0


if __name__ == "__main__":
    sys.exit(main())
