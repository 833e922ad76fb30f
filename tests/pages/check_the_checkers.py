#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checkers of this folder find mistakes that are planted on purpose in a copy of the pages.

    python3 tests/pages/check_the_checkers.py
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("README.md", "CHANGELOG.md", "CITATION.cff", "docs", "bench/results", "cmake", "include", "tests/conformance",
          "examples/first_training.cpp")


class PlantedMistakes(unittest.TestCase):
    """A copy of the pages, and of what they are compared with."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in COPIED:
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)

    def run_checker(self, name, *arguments):
        return subprocess.run([sys.executable, "-B", HERE / f"{name}.py", "--root", self.root, *arguments],
                              capture_output=True, text=True, check=False, env={"LC_ALL": "C.UTF-8"})

    def expect_good(self, name):
        answer = self.run_checker(name)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)

    def expect(self, name, *sentences):
        answer = self.run_checker(name)
        self.assertEqual(answer.returncode, 1, answer.stdout + answer.stderr)
        for sentence in sentences:
            self.assertIn(sentence, answer.stdout)

    def add(self, page, text):
        path = self.root / page
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")

    def replace(self, page, old, new):
        path = self.root / page
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1), encoding="utf-8")


class Numbers(PlantedMistakes):
    def test_the_pages_are_right(self):
        self.expect_good("numbers")

    def test_a_sentence_is_compared_with_its_record(self):
        self.add("README.md",
                 "\n`engine.planted_bugs_found` is 7. `engine.of_nobody` is 3. There are 5<!-- engine.planted_bugs_found -->.\n")
        self.expect("numbers", "engine.planted_bugs_found is 7, and its record says 6",
                    "engine.of_nobody is 3, and has no record", "engine.planted_bugs_found is 5, and its record says 6")

    def test_a_number_with_a_unit_has_a_record(self):
        self.add("README.md", "\nA step takes 12 milliseconds. It is 3.7 times faster, or 2x, for 30.2 billion at 55 TFLOPS, "
                 "12 GB/s. `bf16 x` and 0.1.x are no numbers with units.\n")
        numbers = ("12 milliseconds", "3.7 times", "2x", "30.2 billion", "55 TFLOPS", "12 GB/s")
        self.expect("numbers", f"{len(numbers)} numbers without a record",
                    *(f"README.md: '{number}' has no record" for number in numbers))

    def test_a_table_is_what_the_records_say_and_is_written_anew(self):
        self.add("README.md", "\n<!-- figures: engine.planted_bugs_found -->\nold\n<!-- end of figures -->\n")
        self.expect("numbers", "README.md: a table of figures is not what the records say")
        self.run_checker("numbers", "--write")
        self.assertIn("| `engine.planted_bugs_found` | 6", (self.root / "README.md").read_text(encoding="utf-8"))
        self.expect_good("numbers")

    def test_lines_of_an_output_are_lines_of_the_file(self):
        output = next(path for path in sorted((self.root / "bench/results").iterdir()) if path.suffix == ".txt")
        self.add("README.md", f"\n<!-- output: {output.name} -->\n```\nnobody printed this\n```\n<!-- end of output -->\n")
        self.expect("numbers", f"bench/results/{output.name} has no line 'nobody printed this' there")

    def test_a_mark_has_an_end(self):
        self.add("README.md", "\n<!-- figures: engine.planted_bugs_found -->\n")
        self.expect("numbers", "has no '<!-- end of figures -->' after it")

    def test_a_missed_bound_is_told(self):
        self.replace("bench/results/cpu.json", '"name": "engine.planted_bugs_found", "value": 6',
                     '"name": "engine.planted_bugs_found", "value": 5')
        self.expect("numbers", "engine.planted_bugs_found misses its bound")

    def test_the_version_is_the_same_everywhere(self):
        self.replace("CITATION.cff", "\nversion: ", "\nversion: 9")
        self.expect("numbers", "CITATION.cff: its version is 9")


class OtherCheckers(PlantedMistakes):
    def test_links_lead_to_something(self):
        for page in (self.root / "docs").rglob("*.md"):
            page.unlink()
        (self.root / "README.md").write_text("# A title\n[a](README.md#a-title) `docs/`\n", encoding="utf-8")
        (self.root / "CHANGELOG.md").unlink()
        self.expect_good("links")
        self.add("README.md", "[b](gone.md) [c](#no-title) `docs/gone.md`\n```\n[&](int x)\n```\n")
        self.expect("links", "README.md: gone.md", "README.md: #no-title (no such heading)", "README.md: docs/gone.md")

    def test_a_program_on_a_page_is_its_file(self):
        self.expect_good("programs")
        self.add("examples/first_training.cpp", "// more\n")
        self.expect("programs", "does not show examples/first_training.cpp as it is")
        self.run_checker("programs", "--write")
        self.expect_good("programs")

    def test_the_table_of_policies_is_that_of_the_headers(self):
        self.expect_good("policies")
        self.replace("README.md", "| eviction |", "| evictions |")
        self.expect("policies", "the README's table is not what the headers have")
        self.run_checker("policies", "--write")
        self.expect_good("policies")
        self.add("include/chunkmem/core/policy.hpp", "struct admission_kind {};\n")
        self.expect("policies", "the family admission is in no row")

    def test_quotations_are_said_by_the_library(self):
        self.expect_good("sentences")
        self.add("docs/policies/eviction.md", "\n`chunkmem: nobody says this` `concept of_nobody` `\"no law\"`\n")
        self.expect("sentences", "eviction.md: chunkmem: nobody says this", "eviction.md: concept of_nobody", '"no law"')

    def test_examples_are_taken_with_their_lines(self):
        page = "# Policies\n\n```cpp\n#include <vector>\nint one = 1;\n```\n\n## LibTorch\n\n```cpp\nint two = 2;\n```\n"
        for name in ("docs/integrating.md", "docs/interop.md"):
            (self.root / name).write_text(page, encoding="utf-8")
        for wanted, left_out, arguments in (("one", "two", ()), ("two", "one", ("--libtorch",))):
            out = self.root / f"{wanted}.cpp"
            answer = self.run_checker("extract", "--out", out, *arguments)
            self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
            text = out.read_text(encoding="utf-8")
            self.assertIn(f"int {wanted} = ", text)
            self.assertNotIn(f"int {left_out} = ", text)
        self.assertIn('#line 11 "', text)

    def test_each_block_of_a_page_is_compiled(self):
        (self.root / "docs/errors.md").write_text("\n```cpp\nint one = 1;\n```\n", encoding="utf-8")
        page = ("page_block", "--page", "docs/errors.md")
        self.assertEqual(self.run_checker(*page, "--expect", "1").returncode, 0)
        self.assertEqual(self.run_checker(*page, "--expect", "2").returncode, 1)
        self.assertEqual(self.run_checker(*page, "--text", "of nobody", "--out", self.root / "b.inc").returncode, 1)
        self.assertEqual(self.run_checker(*page, "--text", "int one", "--out", self.root / "b.inc").returncode, 0)
        self.assertIn("int one = 1;", (self.root / "b.inc").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
