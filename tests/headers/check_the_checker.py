#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/headers/check.py, check_symbols.py and older_cuda.py find what they are for, and nothing precedes a header in its chains but
what it includes.

    python3 tests/headers/check_the_checker.py compiler [clang]
"""
import contextlib
import io
import itertools
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import check
import check_symbols
import older_cuda

COMPILERS = sys.argv[1:] or ["g++"]
COMPILER = COMPILERS[0]


def random_tree(seed, size):
    """Headers, each of which includes some of those before it."""
    chance = random.Random(seed)
    names = [f"h{index}" for index in range(size)]
    return check.closures({name: chance.sample(names[:index], chance.randint(0, min(index, 2)))
                           for index, name in enumerate(names)})


def widest_row(included):
    """The most headers none of which includes another one: no cover has fewer chains (Dilworth)."""
    for size in range(len(included), 0, -1):
        for row in itertools.combinations(included, size):
            if not any(one in included[other] for one in row for other in row):
                return size
    return 0


class Chains(unittest.TestCase):
    def test_what_precedes_a_header_is_what_it_includes(self):
        for seed in range(200):
            included = random_tree(seed, 30)
            chains = check.fewest_chains(list(included), included)
            self.assertEqual(sorted(included), sorted(header for chain in chains for header in chain))
            for chain in chains:
                for index, header in enumerate(chain):
                    self.assertLessEqual(set(chain[:index]), included[header])

    def test_a_condition_includes_nothing(self):
        self.assertEqual(check.own_includes("#if X\n#include <chunkmem/a.hpp>\n#endif\n#include <chunkmem/b.hpp>\n"),
                         ["chunkmem/b.hpp"])

    def test_no_cover_has_fewer(self):
        for seed in range(40):
            included = random_tree(seed, 9)
            self.assertEqual(len(check.fewest_chains(list(included), included)), widest_row(included))


class Headers(unittest.TestCase):
    """A tree of two headers, sound, and then with one mistake at a time."""

    def run_on(self, base, user, *options, compiler=COMPILER):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            (top / "include/chunkmem").mkdir(parents=True)
            (top / "cmake").mkdir()
            (top / "cmake/opt_in_headers.txt").write_text("")
            (top / "include/chunkmem/base.hpp").write_text(base)
            (top / "include/chunkmem/user.hpp").write_text(user)
            kept, check.ROOT = check.ROOT, top
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    check.main([*options, compiler])
                return True, said.getvalue()
            except SystemExit as failed:
                return False, said.getvalue() + str(failed)
            finally:
                check.ROOT = kept

    BASE = "#pragma once\n#include <vector>\ninline int first(const std::vector<int>& of) { return of[0]; }\n"
    USER = "#pragma once\n#include <chunkmem/base.hpp>\ninline int twice(int it) { return 2 * first({it}); }\n"

    def test_sound(self):
        for compiler in COMPILERS:
            passed, said = self.run_on(self.BASE, self.USER, compiler=compiler)
            self.assertTrue(passed, said)
            self.assertIn("headers: 2, twice", said)
            self.assertIn("(1 units)", said)

    def test_each_has_a_unit_of_its_own(self):
        for compiler in COMPILERS:
            self.assertIn("(2 units)", self.run_on(self.BASE, self.USER, "--each", compiler=compiler)[1])

    def test_mistakes(self):
        for base, user, wanted in (
                (self.BASE.replace("#include <vector>\n", ""), "#include <vector>\n" + self.USER, "base.hpp"),
                (self.BASE, self.USER + "inline std::size_t all(const std::set<int>& of) { return of.size(); }\n", "user.hpp"),
                (self.BASE, self.USER.replace("#include <chunkmem/base.hpp>\n", ""), "first"),
                (self.BASE.replace("#pragma once", ""), self.USER, "redefinition"),
                (self.BASE, self.USER.replace("it", "N"), "user.hpp"),
                (self.BASE, self.USER.replace("2 * first", "2.5 * first"), "-conversion"),
                (self.BASE, self.USER + "#include <chunkmem/base.hpp>\n", "below code"),
                (self.BASE, self.USER.replace("#include <chunkmem/base.hpp>",
                                              "#ifdef SET\n#include <chunkmem/base.hpp>\n#endif"), "first"),
                (self.BASE.replace("<vector>", "<chunkmem/user.hpp>"), self.USER, "includes itself")):
            for compiler in COMPILERS:
                passed, said = self.run_on(base, user, compiler=compiler)
                self.assertFalse(passed, said)
                self.assertIn(wanted, said)


    def test_a_header_does_not_see_what_another_one_includes(self):
        """Clang has all of them in one unit: `aside` stands first there, `user` includes nothing of it."""
        for compiler in COMPILERS:
            for text in ("inline std::size_t two() { return std::vector<int>(2).size(); }\n", "inline int two() { return TWO; }\n"):
                passed, said = self.run_on("#pragma once\n#include <vector>\n#define TWO 2\n", "#pragma once\n" + text,
                                           compiler=compiler)
                self.assertFalse(passed, said)
                self.assertIn("user.hpp", said)


class Symbols(unittest.TestCase):
    def test_strong_ones_alone_are_named(self):
        listed = "_Z1fv W 0 21\n_Z1gv T 10 8\ncount B 0 4\nshared u 0 4\nvalue D 4 4\ntable V 0 8\n"
        self.assertEqual(check_symbols.strong_symbols(listed), ["_Z1gv", "count", "value"])

    def test_an_object_of_headers(self):
        for text, strong in (("inline int one() { return 1; }\ninline int two = one();\n", False),
                             ("int one() { return 1; }\n", True)):
            with tempfile.TemporaryDirectory() as folder:
                made = f"{folder}/unit.o"
                subprocess.run([*COMPILER.split(), "-std=c++20", "-c", "-x", "c++", "-", "-o", made], input=text,
                               text=True, check=True)
                with contextlib.redirect_stdout(io.StringIO()):
                    if strong:
                        self.assertRaises(SystemExit, check_symbols.main, "nm", made)
                    else:
                        check_symbols.main("nm", made)


class OlderCuda(unittest.TestCase):
    def compiled(self, source):
        """What is said of a source, with headers of an older toolkit before those of the one that is here."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            for name, text in (("old/cuda_runtime_api.h", "int old();"), ("here/cuda_runtime_api.h", "int newer();"), ("here/newer.h", ""),
                               ("here/nccl.h", ""), ("unit.cpp", source)):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text)
            command = [*COMPILER.split(), "-fsyntax-only", "-isystem", str(folder / "old"), "-isystem", str(folder / "here")]
            return older_cuda.compile_one(command, folder / "unit.cpp", folder / "here")

    def test_an_older_header_is_the_one_that_is_seen(self):
        self.assertEqual(self.compiled("#include <cuda_runtime_api.h>\n#include <nccl.h>\nint call() { return old(); }"), "")
        self.assertIn("does not compile", self.compiled("#include <cuda_runtime_api.h>\nint call() { return newer(); }"))

    def test_a_header_of_the_toolkit_that_is_here_is_no_older_one(self):
        self.assertIn("here/newer.h, which is not of this version", self.compiled("#include <newer.h>"))

    def test_after_a_failure_nothing_is_asked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(older_cuda.fetch("12.2", pathlib.Path(folder), "no network"), (None, "no network"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
