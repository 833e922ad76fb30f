#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every C++ and CUDA file is as clang-format 16 writes it.

    python3 tests/layout/check_format.py [<top of the tree>]

Another version of clang-format writes other lines. Where version 16 is not found the check is skipped, with status 4.
"""
import re
import shutil
import subprocess
import sys

import tree

NAMES = ("clang-format-16", "clang-format")
VERSION = re.compile(r"version 16[.]")
SKIPPED = 4
AT_ONCE = 100  # files of one call


def formatter():
    """A clang-format of version 16, or None."""
    for name in NAMES:
        path = shutil.which(name)
        if path and VERSION.search(subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout):
            return path
    return None


def is_formatted(clang_format, root, files):
    """Are these files, one after the other, what clang-format makes of them?

    The option --dry-run is no answer: it complains of comments after an inline namespace that are right.
    """
    printed = subprocess.run([clang_format, "--style=file", *files], cwd=root, stdout=subprocess.PIPE, check=True).stdout
    return printed == b"".join((root / path).read_bytes() for path in files)


def violations_of(root, clang_format):
    """A sentence for each file that differs."""
    files = tree.cpp_files_of(root)
    violations = []
    for begin in range(0, len(files), AT_ONCE):
        batch = files[begin:begin + AT_ONCE]
        if not is_formatted(clang_format, root, batch):
            violations += [f"{path} differs: {NAMES[0]} -i {path}"
                           for path in batch if not is_formatted(clang_format, root, [path])]
    return violations


def main():
    root = tree.root_of_arguments()
    clang_format = formatter()
    if not clang_format:
        print("SKIPPED: no clang-format of version 16 was found (Debian 12: apt-get install clang-format-16)")
        sys.exit(SKIPPED)
    tree.report("format", violations_of(root, clang_format), f"{len(tree.cpp_files_of(root))} files are formatted")


if __name__ == "__main__":
    main()
