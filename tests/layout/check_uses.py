#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each class of a public namespace shows its use in its comment; classes inside of classes are not looked at.

    python3 tests/layout/check_uses.py [tree]

A namespace or folder `detail` is not public. A use is a block of code in the comment (indented, fenced, or @code), or a
call or a value in backticks. A tag, such as `struct sink_kind {};`, needs none.
"""
import re

import tree

# Neither a declaration, nor a specialization or a tag; also one with its members in the same line.
CLASS = re.compile(r"(?:class|struct) (\w+)\b(?! *<)(?:[^;]*$|[^;{]*\{ *[^} ])")
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


def violations_of(root):
    headers = [path for path in sorted((root / "include").rglob("*.hpp")) if "detail" not in path.parts]
    return [f"{path.relative_to(root)}:{line} {name} shows no use in its comment"
            for path in headers for line, name in without_use(path)] or ([] if headers else ["there is no header"])


if __name__ == "__main__":
    tree.report("uses", violations_of(tree.root_of_arguments()), "each public class shows its use")
