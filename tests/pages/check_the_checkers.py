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
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("README.md", "CHANGELOG.md", "CITATION.cff", "docs", "bench/results", "cmake", "include", "tests/conformance",
          "examples/first_training.cpp", "examples/batch_norm.cpp", "examples/c_trainer")


class PlantedMistakes(unittest.TestCase):
    """A copy of the pages, and of what they are compared with."""
    copied = COPIED

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in self.copied:
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


class Steps(PlantedMistakes):
    copied = ("docs", "tests/sharding/step_kinds_test.cpp")

    def test_another_table(self):
        self.expect_good("steps")
        self.replace("docs/training.md", "| a manager | at once, late, early |", "| a manager | at once |")
        self.expect("steps", "docs/training.md has another table of steps")


class Numbers(PlantedMistakes):
    copied = ("README.md", "CHANGELOG.md", "CITATION.cff", "docs", "bench/results", "cmake", "include/chunkmem/core/version.hpp")

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


class NamesOfTheApi(PlantedMistakes):
    """A header and a page that are small."""
    copied = ("docs/site/stage.py",)
    HEADER = """
#define PLANTED(x) struct x { \\
  class open {
namespace chunkmem::inline v0 {
namespace detail { struct inner { void call(); }; }
/// Without `<memory>`.
///     std::vector <int> code;
template <class T>
  requires(sizeof(T) > 4)
class outer : public base<T> {
  void hidden();
  struct own {};
 public:
  using base<T>::brought;
  int seen(int a = {0}, T b = T{}) const { return a < 24'000 ? a : '}'; }
  friend bool told(outer a);
  outer() : a_{1}, b_(2) {}
 private:
  void last(); int a_, b_{3};
};
template <class T> struct base { void low(); void brought(); };
template <class T> using alias = outer<T>;
enum class choice : int { first, second [[deprecated]] = 2 };
struct settings { int width{1}; double rate = 0.5; };
template <class T> concept able = requires(T t) { t.call(); };
namespace tools { inline void free_call(int a) noexcept(true) {} }
}  // namespace chunkmem::inline v0
"""
    PAGE = """# Calls

## Of a class

```{calls} chunkmem::alias
seen low brought
```

```{classes}
!chunkmem::outer
chunkmem::able
```

```{doxygenenum} chunkmem::choice
```

```{calls} chunkmem::tools
free_call
```
"""

    def setUp(self):
        super().setUp()
        for name, text in (("include/chunkmem/core/outer.hpp", self.HEADER), ("docs/site/api/calls.md", self.PAGE)):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")

    def test_public_names_are_good(self):
        self.expect_good("api_names")
        (self.root / "README.md").write_text("`cm::outer::seen(1)` `settings::width` `settings::rate` `choice::second` `tools::free_call` `std::gone` "
                                             "`alias::low`\n```\n`outer::gone`\n```\n", encoding="utf-8")
        self.expect_good("api_names")
        self.add("README.md", "`outer::gone` `choice::third` `chunkmem::tools::settings` `outer::a_`\n")
        self.expect("api_names", *(f"README.md: {name} is no public name" for name in ("outer::gone", "choice::third", "chunkmem::tools::settings")),
                    "README.md: outer::a_ is")

    def test_what_is_no_public_name_is_told(self):
        self.replace("docs/site/api/calls.md", "seen low", "seen gone hidden last told own call low")
        self.replace("docs/site/api/calls.md", "chunkmem::able", "chunkmem::able chunkmem::detail::inner chunkmem::outer::own chunkmem::choice")
        self.replace("docs/site/api/calls.md", "\nfree_call", "\nfree_call seen")
        self.expect("api_names",
                    *(f"chunkmem::alias has no public call {name}\n" for name in ("gone", "hidden", "last", "told", "own", "call")),
                    *(f"there is no class chunkmem::{name} in" for name in ("detail::inner", "outer::own", "choice")),
                    "chunkmem::tools has no public call seen")
        self.assertNotRegex(self.run_checker("api_names").stdout, "alias has no public call (seen|low|brought)|free_call")

    def test_an_empty_list_is_told_and_html_in_a_comment(self):
        self.add("include/chunkmem/core/outer.hpp", "/// Without <memory>, and `<memory>`.\n")
        self.add("docs/site/api/calls.md", "\n## Planted\n\n## More\n\n```{calls} chunkmem::alias\n```\n\n```{classes}\n```\n"
                 "\n```{other_calls} chunkmem::of_nobody\n```\n\n```{doxygenenum} chunkmem::outer\n```\n\n```{planted} x\n```\n")
        self.expect("api_names", "the section 'Planted' is empty", "the calls of chunkmem::alias: there is no name",
                    "a list of classes has no name", "the other calls of chunkmem::of_nobody: there are none",
                    "there is no enum chunkmem::outer", "the block {planted} is unknown", "outer.hpp:28: <memory> is HTML to Doxygen")


class Examples(PlantedMistakes):
    copied = ("docs/site/api", "include", "tests/pages/api_examples.cpp", "tests/pages/configurator_examples.cpp")

    def test_each_example_in_a_comment_is_run(self):
        self.expect_good("api_examples")
        self.replace("include/chunkmem/optimizer/step.hpp", "/// Updates every parameter", "/// Updates all parameters")
        self.expect_good("api_examples")
        self.replace("include/chunkmem/optimizer/step.hpp", "/// Updates all parameters", "/// The same for all parameters")
        self.expect("api_examples", "chunkmem::optimizer::step")
        self.replace("include/chunkmem/optimizer/step.hpp", "/// The same for all parameters", "/// Updates all parameters")
        self.replace("tests/pages/api_examples.cpp", '#include "manager.drop.1.inc"', "")
        self.expect("api_examples", "manager.drop.1 is in no test")
        self.replace("include/chunkmem/manager/basic_manager.hpp", "  ///     m.drop(activation);", "  /// m.drop(activation);")
        self.expect_good("api_examples")
        self.assertIn("chunkmem::manager::drop", self.run_checker("api_examples").stdout)
        self.replace("include/chunkmem/manager/basic_manager.hpp", '  ///     m.name(w, "wte");', '  /// m.name(w, "wte");')
        self.expect("api_examples", "manager.name.1 is in no comment")


class TablesOfContents(PlantedMistakes):
    copied = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs",
              *(str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*/README.md")))

    def test_the_tables_are_right(self):
        self.expect_good("toctrees")

    def test_a_page_in_no_table_is_told(self):
        self.replace("docs/site/index.md", "configure: a plan for a cluster <examples/configure/README>\n", "")
        (self.root / "examples/planted").mkdir()
        for name in ("examples/planted/README.md", "docs/planted.md", "docs/policies/planted.md", "docs/site/api/planted.md"):
            (self.root / name).write_text("# Planted\n", encoding="utf-8")
        self.expect("toctrees", "examples/configure/README.md is in no table", "examples/planted/README.md is in no table",
                    "docs/planted.md is in no table", "docs/site/api/planted.md is in no table")
        self.assertNotIn("docs/policies/planted.md", self.run_checker("toctrees").stdout)  # the table of that page is a pattern

    def test_an_entry_that_is_no_page_is_told(self):
        self.replace("docs/site/api/index.md", "\ndeclare\n", "\ndeclared\n")
        self.expect("toctrees", "its table of contents names api/declared, which is no page", "docs/site/api/declare.md is in no table")

    def test_a_page_that_is_not_staged_is_told(self):
        self.replace("docs/site/stage.py", '"docs/policies/*.md", ', "")
        self.expect("toctrees", "docs/policies/eviction.md is no page of the site")


class Commands(PlantedMistakes):
    """A page, and the files that its commands name."""
    copied = ("CMakePresets.json", "cmake/bootstrap.sh")
    PAGE = """# Page

```sh
cmake --preset demo -DCHUNKMEM_KNOWN=ON && cmake --build build/demo --target known   # a remark --unknown
mpirun -n 4 build/demo/bin/known --first \\
  --second=3 > build/demo/x
```

`sh tests/run.sh asan`, `known --first`, `python3 tools/script.py --good tools/*.py`, `ctest -R '^core$'`, `ctest --preset test -R ways.cpm`,
`build/test/bin/test_core.part`, `ctest -L slow`, `tool --unknown`, `cmake --build <folder> --target <target>`.
"""

    def setUp(self):
        super().setUp()
        for name, text in {"README.md": self.PAGE, "CMakeLists.txt": 'option(CHUNKMEM_KNOWN "x" ON)\nchunkmem_test(ways.${way} LABELS slow COMMAND x)\n',
                           "examples/known/CMakeLists.txt": "chunkmem_program(known main.cpp)\n", "tools/script.py": '"--good"\n',
                           "examples/known/main.cpp": 'f("--first"); g("-s,--second"); // --third\n', "tests/run.sh": "exec\n",
                           "tests/core/a_test.cpp": "", "tests/core/ctest.cmake": "chunkmem_part(part a)\n", "bench/results/cpu.json": "[]"}.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")

    def test_commands_are_good(self):
        self.expect_good("commands")

    def test_what_is_not_there_is_told(self):
        (self.root / "bench/results/cpu.json").write_text('[{"command": "build/test/bin/test_gone"}, {"value": 1}]', encoding="utf-8")
        self.add("README.md", """
```
cmake --preset of_nobody -DCHUNKMEM_UNKNOWN=ON
cmake --build build/never --target absent
build/demo/bin/known --third
```

`sh tests/run.sh all`, `sh tests/run.sh --no`, `python3 tools/script.py --bad`, `sh tools/gone.sh`, `known --fir`, `ctest -R '^gone$'`,
`ctest -R ways.of.`, `ctest -L quick`, `g++ -I include tools/gone/*.cpp`, `build/test/bin/test_core.none`
""")
        self.expect("commands", "there is no preset of_nobody", "there is no option CHUNKMEM_UNKNOWN", "build/never is the folder of no preset",
                    "there is no target absent", "known has no option --third", "there is no preset all", "cmake/bootstrap.sh has no option --no",
                    "tools/script.py has no option --bad", "there is no tools/gone.sh", "known has no option --fir", "there is no test ^gone$",
                    "there is no label quick", "there is no tools/gone/*.cpp", "there is no program test_core.none",
                    "bench/results/cpu.json: `build/test/bin/test_gone`: there is no program test_gone")


class Floors(PlantedMistakes):
    copied = ("cmake", "include", "docs")
    TOOL = "../../tools/floors"

    def run_checker(self, name, *arguments):
        return super().run_checker(name, "--check", *arguments)

    def test_the_drawing_is_that_of_the_headers(self):
        self.expect_good(self.TOOL)

    def test_another_include_and_a_folder_without_a_line_are_told(self):
        self.replace("include/chunkmem/io/checksum.hpp", "#pragma once\n", "#pragma once\n#include <chunkmem/trace/trace_sink.hpp>\n")
        self.replace("docs/architecture.md", "`interop/`", "interop")
        self.expect(self.TOOL, "floors.svg is not what the headers include", "does not say what is in interop/")


class Stage(unittest.TestCase):
    def test_initializers_are_shown_without_the_dots_of_designators(self):
        sys.path.insert(0, str(ROOT / "docs/site"))
        import stage
        definition = xml.fromstring("<a><initializer>{.trials = 24'000, .of{.exact = .5}}</initializer>"
                                    "<defval><ref>x</ref>{<ref>y</ref>{0.5, .5, a.b}, .c = 1}</defval></a>")
        stage.plain_initializers(definition)
        self.assertEqual("".join(definition.itertext()), "{trials = 24'000, of{exact = .5}}x{y{0.5, .5, a.b}, c = 1}")


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
        self.replace("docs/policies/index.md", "| eviction |", "| evictions |")
        self.expect("policies", "the table of docs/policies/index.md is not what the headers have")
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
