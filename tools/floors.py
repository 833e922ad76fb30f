#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The drawing of docs/architecture.md: the folders of include/chunkmem on their floors, and which one includes which.

    python3 tools/floors.py [--root ROOT] [--check]

Writes docs/pictures/floors.svg; with --check it only says whether that picture is what the headers include today. A
line between two folders is left out where others lead there already, so that the picture has as few as possible.
"""
import argparse
import pathlib
import re
import sys

WIDTH, ROW, BOX, GAP, TOP = 920, 80, (150, 38), 26, 20
STYLE = ('text { font: 15px sans-serif; text-anchor: middle; fill: #1a1a1a } '
         'rect { fill: #eef3f8; stroke: #35618e } line { stroke: #8a97a5; stroke-width: 1.2 }')


def floors_of(root):
    """The folders of each floor, from the ground up."""
    lines = (root / "cmake/floors.txt").read_text(encoding="utf-8").splitlines()
    return [line.split()[1:] for line in lines if line and not line.startswith("#")]


def includes_of(root, folders):
    """By folder: the other folders that a header of it includes, itself."""
    found = {}
    for folder in folders:
        text = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "include/chunkmem" / folder).rglob("*.hpp")))
        found[folder] = set(re.findall(r"^#include <chunkmem/(\w+)/", text, re.M)) - {folder}
    return found


def reached(folder, includes):
    """All that the folder includes, directly or through others."""
    seen, left = set(), [folder]
    while left:
        for other in includes[left.pop()]:
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def fewest(includes):
    """The includes that no other ones imply."""
    return {folder: {it for it in direct if not any(it in reached(other, includes) for other in direct if other != it)}
            for folder, direct in includes.items()}


def drawing(root):
    floors = floors_of(root)
    includes = fewest(includes_of(root, [folder for floor in floors for folder in floor]))
    places = {}
    for level, floor in enumerate(floors):
        width = len(floor) * BOX[0] + (len(floor) - 1) * GAP
        for index, folder in enumerate(floor):
            places[folder] = ((WIDTH - width) // 2 + index * (BOX[0] + GAP), TOP + (len(floors) - 1 - level) * ROW)
    height = 2 * TOP + (len(floors) - 1) * ROW + BOX[1]
    lines, boxes = [], []
    for folder, (x, y) in places.items():
        for other in sorted(includes[folder]):
            to_x, to_y = places[other]
            lines.append(f'<line x1="{x + BOX[0] // 2}" y1="{y + BOX[1]}" x2="{to_x + BOX[0] // 2}" y2="{to_y}"/>')
        boxes.append(f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="5"/>'
                     f'<text x="{x + BOX[0] // 2}" y="{y + 24}">{folder}</text>')
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                      f'viewBox="0 0 {WIDTH} {height}">', f"<style>{STYLE}</style>",
                      f'<rect x="0" y="0" width="{WIDTH}" height="{height}" style="fill: #ffffff; stroke: none"/>',
                      *lines, *boxes, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description="draws the floors of include/chunkmem")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    picture = given.root / "docs/pictures/floors.svg"
    drawn = drawing(given.root)
    if not given.check:
        picture.write_text(drawn, encoding="utf-8")
    faults = []
    if not picture.exists() or picture.read_text(encoding="utf-8") != drawn:
        faults.append("docs/pictures/floors.svg is not what the headers include: python3 tools/floors.py")
    page = (given.root / "docs/architecture.md").read_text(encoding="utf-8")
    folders = [folder for floor in floors_of(given.root) for folder in floor]
    faults += [f"docs/architecture.md does not say what is in {folder}/" for folder in folders if f"`{folder}/`" not in page]
    print(*faults, sep="\n")
    if faults:
        sys.exit(1)
    print(f"floors: {len(folders)} folders are drawn and named")


if __name__ == "__main__":
    main()
