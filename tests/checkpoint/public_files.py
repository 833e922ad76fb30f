# SPDX-License-Identifier: Apache-2.0
"""The safetensors files that installed packages of Python hold, for public_files_test.cpp.

public_files.py <file>   writes a line for each of them: its path
"""
import importlib.metadata
import pathlib
import sys

if __name__ == "__main__":
    held = {
        pathlib.Path(path.locate()).resolve()
        for package in importlib.metadata.distributions()
        for path in package.files or ()
        if path.suffix == ".safetensors"
    }
    pathlib.Path(sys.argv[1]).write_text("".join(f"{path}\n" for path in sorted(held) if path.is_file()))
