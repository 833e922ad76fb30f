#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names each public class whose comment does not show its use.

    python3 tools/classes_without_use.py [<top of the tree>]

Public is a class of a header outside of each namespace and folder `detail`. A use is a block of code in its comment
(indented, fenced, or @code), or a call or a value in backticks. A tag, such as `struct sink_kind {};`, needs none.
"""
import pathlib
import re
import sys

CLASS = re.compile(r"(?:class|struct) (\w+)(?! *<)[^;]*$")  # neither a declaration, nor a specialization or a tag
OPENS = re.compile(r"(?:inline )?namespace ([\w: ]+?) ?\{")
CLOSES = re.compile(r"\} *// namespace")
BLOCK = re.compile(r"^ {5}\S|^ ```|@code", re.MULTILINE)
CALL = re.compile(r"[\w>] ?[({]")  # f(x), f<T>{x}, catch (x)


def comment_above(lines, index):
    """The comment of the class in this line: it stands above the template and its requirements."""
    while index > 0 and lines[index - 1].strip() and not lines[index - 1].startswith(("///", "#", "}", "namespace")):
        index -= 1
    begin = index
    while begin > 0 and lines[begin - 1].startswith("///"):
        begin -= 1
    return "\n".join(line[3:] for line in lines[begin:index])


def shows_use(comment):
    return BLOCK.search(comment) or any(CALL.search(quoted) for quoted in comment.split("`")[1::2])


def without_use(header):
    """Lines and names of the classes of a header."""
    spaces = []
    lines = header.read_text(encoding="utf-8").splitlines()
    for index, line in enumerate(lines):
        if opened := OPENS.match(line):
            spaces.append(opened[1])
        elif CLOSES.match(line):
            spaces.pop()
        elif (found := CLASS.match(line)) and not any("detail" in space for space in spaces):
            if not shows_use(comment_above(lines, index)):
                yield index + 1, found[1]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    headers = [path for path in sorted((root / "include").rglob("*.hpp")) if "detail" not in path.parts]
    found = [f"{path.relative_to(root)}:{line} {name}" for path in headers for line, name in without_use(path)]
    print("\n".join(found) if found else f"uses: each public class in {len(headers)} headers shows its use")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
