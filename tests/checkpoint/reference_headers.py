# SPDX-License-Identifier: Apache-2.0
"""What the reference of safetensors says of files, for reference_headers_test.cpp.

reference_headers.py judge <folder>   writes <folder>/judged: for each file of names 0, 1, 2 ... a line "taken" or "refused"
reference_headers.py ask              fails unless safetensors is 0.8.0 or newer: older ones take other headers
"""
import os
import sys

import safetensors


def is_taken(path):
    with open(path, "rb") as file:
        try:
            safetensors.deserialize(file.read())
        except safetensors.SafetensorError:
            return False
    return True


if __name__ == "__main__":
    if sys.argv[1] == "judge":
        folder = sys.argv[2]
        files = sorted((name for name in os.listdir(folder) if name.isdigit()), key=int)
        with open(os.path.join(folder, "judged"), "w") as out:
            for name in files:
                print("taken" if is_taken(os.path.join(folder, name)) else "refused", file=out)
    elif tuple(map(int, safetensors.__version__.split(".")[:2])) < (0, 8):
        sys.exit("safetensors " + safetensors.__version__ + " is older than 0.8.0")
