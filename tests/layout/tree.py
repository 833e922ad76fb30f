# SPDX-License-Identifier: Apache-2.0
"""The files of the tree, for the checkers of this folder.

Each checker takes the top of another tree as its only argument; without an argument it checks the tree around it.
"""
import pathlib
import subprocess
import sys

CPP = (".hpp", ".cpp", ".cu", ".cuh")
NOT_OURS = ("build", ".git", ".cache", "_carry")


def root_of_arguments():
    """The tree to check."""
    return pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()


def files_of(root):
    """The paths, below root, that git tracks or would track; in a copy without git: each file outside of build/."""
    if (root / ".git").exists():
        try:
            listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
            paths = sorted(set(listed.stdout.decode().split("\0")) - {""})
            return [path for path in paths if (root / path).is_file()]
        except (OSError, subprocess.CalledProcessError):
            pass
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.parts[0] not in NOT_OURS and "__pycache__" not in path.parts)


def cpp_files_of(root):
    """The C++ and CUDA files of the tree."""
    return [path for path in files_of(root) if path.endswith(CPP)]


def report(checker, violations, success):
    """Ends the program: with status 1 and each violation, or with a line about what was seen."""
    if violations:
        count = len(violations)
        print(f"{checker}: {count} violation{'s' if count > 1 else ''}", *violations, sep="\n  ")
        sys.exit(1)
    print(f"{checker}: {success}")
