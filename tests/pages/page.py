# SPDX-License-Identifier: Apache-2.0
"""What the checkers of this folder share: their arguments, the pages, and the way to fail."""
import argparse
import pathlib
import sys

POLICIES = "docs/policies/*.md"
README_AND_DOCS = ("README.md", "docs/*.md", POLICIES)


def arguments(description, **more):
    """The arguments of a checker: --root, and what `more` says, as {"--out": {"type": pathlib.Path}}."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2],
                        help="top of the tree (the tree of this script)")
    for name, settings in more.items():
        parser.add_argument("--" + name, **settings)
    found = parser.parse_args()
    found.root = found.root.resolve()
    return found


WRITE = {"action": "store_true", "help": "write the pages anew instead of comparing them"}


def pages(root, *patterns):
    """The pages of these patterns, in order, as paths."""
    return [path for pattern in patterns for path in sorted(root.glob(pattern))]


def read(path):
    return path.read_text(encoding="utf-8")


def write_if_changed(path, text):
    """Keeps the date of a file that has the text already, so that nothing is compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or read(path) != text:
        path.write_text(text, encoding="utf-8")


def fail(checker, *sentences):
    print(f"{checker}: ", end="")
    print(*sentences, sep="\n  ")
    sys.exit(1)


def between(text, begin, end, where):
    """Each part of the text from a `begin` to its `end`, which is left out."""
    at = text.find(begin)
    while at != -1:
        until = text.find(end, at)
        if until == -1:
            fail("docs", f"{where}: '{begin}' has no '{end}' after it")
        yield text[at:until]
        at = text.find(begin, until)
