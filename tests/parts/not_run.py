#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run of the tests ends with what it left out. Scripts play apt, CMake and ctest, in a tree of a few files.

    python3 tests/parts/not_run.py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTRIBUTING = """# Contributing

## Before you push

```
tool install            # once: sets it up
sh tests/run.sh         # tests
sh tests/run.sh slow    # more
python3 tests/a/check.py   # is one of the tests
sh tools/site.sh --check   # the site
```

```
sh no/command.sh
```
"""
INSTALLING = """# Installing

| way | commands | test |
|---|---|---|
| installed | `cmake && cmake --install` | `consumers.find_package` |
| Conan 2 | `conan create` | `consumers.conan` |
| CPM | `CPMAddPackage` | `consumers.cpm` |

## Components

| `cuda` | a toolkit | `none.of_the_ways` |
"""


def case(name, output="", status="run"):
    text = output.replace("&", "&amp;").replace("<", "&lt;")
    return f'<testcase name="{name}" classname="{name}" time="1" status="{status}"><system-out>{text}</system-out></testcase>'


def results(*cases):
    return '<?xml version="1.0" encoding="UTF-8"?><testsuite name="x">' + "".join(cases) + "</testsuite>"


class NotRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("cmake/bootstrap.sh", "cmake/not_run.py"):
            self.write(name, (ROOT / name).read_text(encoding="utf-8"))
        self.write("CONTRIBUTING.md", CONTRIBUTING)
        self.write("docs/installing.md", INSTALLING)
        presets = [{"name": name, "configurePreset": name} for name in ("test", "asan", "slow", "gpu")]
        presets.append({"name": "quick", "configurePreset": "quick"})  # tests of another one, so it is never named
        some = {"name": "quick", "cacheVariables": {"CHUNKMEM_ONLY_TESTS": "core"}}
        presets.append({"name": "arm", "configurePreset": "arm"})  # the same tests for another processor
        of_arm = {**some, "name": "arm", "toolchainFile": "arm.cmake"}
        self.write("CMakePresets.json", json.dumps({"buildPresets": presets, "configurePresets": [some, of_arm]}))
        self.play("ctest", "while [ $# -gt 0 ]; do case $1 in --output-junit) cp given.xml \"$2\" ;;"
                  " --show-only*) cat commands.json ;; esac; shift; done")
        self.write("commands.json", json.dumps({"tests": [{"name": "a", "command": ["python3", "/x/tests/a/check.py"]}]}))

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def play(self, name, text):
        self.write(f"bin/{name}", f"#!/bin/sh\n{text}\n")
        (self.root / "bin" / name).chmod(0o755)

    def said(self, *command):
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        answer = subprocess.run(command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        return answer.stdout

    def listed(self, *presets):
        lines = self.said("python3", "-B", "cmake/not_run.py", *presets).splitlines()
        self.assertEqual(lines[0], "chunkmem: not run here:")
        return [line.strip() for line in lines[1:]]

    def test_reasons_come_from_the_tests_and_ways_from_the_pages(self):
        self.write("build/test/results.xml", results(
            case("a", "all well\nnot SKIPPED: this\n"), case("consumers.find_package", "-- LEFT OUT: half of it\n"),
            case("consumers.conan", "-- SKIPPED: no conan <was> found\n", "notrun"),
            *(case(f"gpu.{number}", "SKIPPED: no nvcc\n", "notrun") for number in range(6)),
            case("old", "\x01SKIPPED: x\nSKIPPED:\nexplicitly with message:\n  of Catch2 3\n"), case("silent", "", "notrun")))
        self.assertEqual(self.listed("test"), [
            "ways to get chunkmem (docs/installing.md): CPM", "sh tests/run.sh asan slow gpu arm", "sh tools/site.sh --check",
            "Conan 2 (consumers.conan): no conan <was> found", "installed (consumers.find_package): half of it",
            "gpu.0, gpu.1, gpu.2, gpu.3 and 2 more: no nvcc", "old: of Catch2 3", "silent: no reason was given"])

    def test_what_another_preset_did_is_no_gap(self):
        self.write("build/test/results.xml", results(case("threads"), case("both", "SKIPPED: no tool\n"), case("consumers.find_package"),
                                                     case("consumers.conan"), case("consumers.cpm")))
        self.write("build/asan/results.xml", results(case("threads", "SKIPPED: a sanitizer\n"), case("both", "SKIPPED: no tool\n"),
                                                     case("of_asan", "SKIPPED: alone\n"), case("broken", "SKIPPED: half\n", "fail")))
        self.assertEqual(self.listed("test", "asan"), ["sh tests/run.sh slow gpu arm", "sh tools/site.sh --check", "both: no tool", "of_asan: alone"])

    def test_a_run_of_the_tests_ends_with_the_list(self):
        self.play("id", "echo 0")
        self.play("dpkg-query", "echo installed")
        self.play("apt-get", "exit 1")
        self.play("apt-cache", "exit 0")
        self.play("ninja", "exit 0")
        self.play("cmake", '[ "$1" = --version ] && echo "cmake version 3.25.1"; mkdir -p build/test')
        (self.root / "build/test").mkdir(parents=True)
        self.write("given.xml", results(case("consumers.conan", "SKIPPED: no conan\n", "notrun")))
        lines = self.said("sh", "cmake/bootstrap.sh", "--yes", "test").splitlines()
        at = lines.index("chunkmem: not run here:")
        self.assertTrue(lines[at - 1].startswith("chunkmem: all passed in"), lines)
        self.assertEqual([line.strip() for line in lines[at + 1:]], ["ways to get chunkmem (docs/installing.md): installed, CPM",
                         "sh tests/run.sh asan slow gpu arm", "sh tools/site.sh --check", "Conan 2 (consumers.conan): no conan"])


class OfThisTree(unittest.TestCase):
    def test_the_pages_have_ways_and_commands(self):
        answer = subprocess.run([sys.executable, "-B", ROOT / "cmake/not_run.py", "test"], capture_output=True, text=True, check=False)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        for word in ("sh tests/run.sh", "slow", "gpu", "bench", "aarch64", "sh tools/site.sh --check", "sudo sh tools/bare_roots.sh", "Conan 2"):
            self.assertIn(word, answer.stdout)
        self.assertNotIn("pre-commit", answer.stdout)


if __name__ == "__main__":
    unittest.main()
