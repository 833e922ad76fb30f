#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pictures of scikit-learn's data set "digits" as lines of 65 numbers.

    python3 examples/out_of_core/digits.py > digits.csv

The data set is a part of the package (pip install scikit-learn). Nothing is downloaded.
"""
import gzip
import importlib.util
import pathlib
import shutil
import sys


def main():
    package = importlib.util.find_spec("sklearn")
    if package is None:
        sys.exit("SKIPPED: python3 has no scikit-learn (pip install scikit-learn)")
    file = pathlib.Path(package.origin).parent / "datasets/data/digits.csv.gz"
    with gzip.open(file) as pictures:
        shutil.copyfileobj(pictures, sys.stdout.buffer)


if __name__ == "__main__":
    main()
