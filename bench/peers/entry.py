# SPDX-License-Identifier: Apache-2.0
"""Our functions behind a plain interface, compiled for the scripts in this folder."""
import ctypes
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def compiled(name, folder, compiler):
    """The functions of a source of this folder, such as "adam_entry", made in `folder`."""
    made = folder / f"{name}.so"
    subprocess.run([compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-pthread", "-I", ROOT / "include",
                    HERE / f"{name}.cpp", "-o", made], check=True)
    return ctypes.CDLL(str(made))
