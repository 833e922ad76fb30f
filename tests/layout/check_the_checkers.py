#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checkers of this folder notice each violation: a tiny tree keeps the rules, then breaks one rule at a time.

    python3 tests/layout/check_the_checkers.py
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_bytes_of_ranks
import check_format
import check_layout
import check_map
import check_packages
import check_skips
import check_uses
import check_words
import check_workflow

HERE = pathlib.Path(__file__).parent
LICENCE = "SPDX-License-Identifier: Apache-2.0"
FLOORS = "# floor, then its folders\n0 core\n1 trace tensor\n2 backend\n5 manager\n"


class TinyTree(unittest.TestCase):
    """A tree of seven headers that keeps all rules."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.write("cmake/floors.txt", FLOORS)
        self.header("fwd.hpp", "#include <cstdint>")
        self.header("core/a.hpp", "#include <chunkmem/fwd.hpp>", "#include <vector>", "/// #include <thread>")
        self.header("trace/b.hpp", "#include <chunkmem/core/a.hpp>")
        self.header("tensor/c.hpp", "#include <chunkmem/core/a.hpp>")
        self.header("backend/d.hpp", "#include <chunkmem/tensor/c.hpp>", "#include <thread>")
        self.header("manager/e.hpp", "#include <chunkmem/tensor/c.hpp>")
        self.header("chunkmem.hpp", "#include <chunkmem/manager/e.hpp>", "#include <chunkmem/fwd.hpp>")

    def leave_out(self, what):
        """Skips a test, and says so where the list of what was not run reads it."""
        print(f"\nLEFT OUT: {what}")
        self.skipTest(what)

    def write(self, path, *lines):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def source(self, path, *lines):
        self.write(path, f"// {LICENCE}", *lines)

    def header(self, path, *lines):
        self.source(f"include/chunkmem/{path}", "#pragma once", *lines)

    def expect(self, *sentences, checker=check_layout):
        """The checker says these sentences, and no other one."""
        found = checker.violations_of(self.root)
        for sentence in sentences:
            self.assertTrue(any(sentence in each for each in found), f"no '{sentence}' in {found}")
        self.assertEqual(len(found), len(sentences), found)


class Layout(TinyTree):
    def test_a_good_tree_is_good(self):
        self.expect()
        self.expect(checker=check_words)

    def test_a_header_includes_no_higher_floor(self):
        self.header("core/upward.hpp", "#include <chunkmem/backend/d.hpp>")
        self.expect("upward include: chunkmem/core/upward.hpp (floor 0) includes chunkmem/backend/d.hpp (floor 2)")

    def test_nobody_includes_the_umbrella(self):
        self.header("core/reaches.hpp", "  #  include <chunkmem/chunkmem.hpp>")
        self.expect("upward include: chunkmem/core/reaches.hpp")

    def test_a_header_includes_no_neighbour_on_its_floor(self):
        self.header("trace/sideways.hpp", "#include <chunkmem/tensor/c.hpp>")
        self.expect("sideways include: chunkmem/trace/sideways.hpp includes chunkmem/tensor/c.hpp, both on floor 1")

    def test_a_folder_has_a_floor(self):
        self.header("cellar/f.hpp")
        self.header("stray.hpp")
        self.expect("unknown folder: chunkmem/cellar/f.hpp", "unknown folder: chunkmem/stray.hpp")

    def test_a_header_of_a_known_folder_includes_no_unknown_folder(self):
        self.header("cellar/f.hpp")
        self.header("core/g.hpp", "#include <chunkmem/cellar/f.hpp>")
        self.expect("unknown folder: chunkmem/cellar/f.hpp", "chunkmem/core/g.hpp includes chunkmem/cellar/f.hpp")

    def test_a_floor_has_headers(self):
        self.write("cmake/floors.txt", FLOORS + "8 attic")
        self.expect("empty floor: cmake/floors.txt names attic")

    def test_no_two_headers_have_one_name(self):
        self.header("backend/a.hpp")
        self.expect("duplicate name: chunkmem/backend/a.hpp and chunkmem/core/a.hpp")

    def test_a_tag_of_a_comment_has_a_text(self):
        self.header("core/tags.hpp", "/// Does it. @param slot, @throws as the other", "/// @param from   where it was called", "/// @tparam")
        self.expect("comment: chunkmem/core/tags.hpp:3", "comment: chunkmem/core/tags.hpp:5")

    def test_a_message_says_chunkmem_once(self):
        self.header("core/twice.hpp", 'throw io_error{', '    "chunkmem: no disk"};', 'io_error{"no disk"};')
        self.expect("message: chunkmem/core/twice.hpp:")

    def test_a_cuh_may_need_anything_and_is_a_header_otherwise(self):
        self.header("backend/kernel.cuh", "#include <cub/cub.cuh>", "#include <chunkmem/backend/d.hpp>")
        self.expect()
        self.source("include/chunkmem/backend/d.cuh", "#include <chunkmem/manager/e.hpp>")
        self.header("manager/takes.hpp", "#include <chunkmem/backend/kernel.cuh>")
        self.expect("no pragma: chunkmem/backend/d.cuh", "upward include: chunkmem/backend/d.cuh",
                    "opt-in: chunkmem/manager/takes.hpp includes chunkmem/backend/kernel.cuh")

    def test_a_header_that_needs_a_component_is_listed(self):
        self.header("backend/runtime.hpp", "#include <cuda_runtime_api.h>")
        self.expect("foreign: chunkmem/backend/runtime.hpp includes <cuda_runtime_api.h>")
        self.write("cmake/opt_in_headers.txt", "# a comment", "backend/runtime.hpp cuda")
        self.expect()
        self.header("backend/user.hpp", "#include <chunkmem/backend/runtime.hpp>")
        self.expect("opt-in: chunkmem/backend/user.hpp includes chunkmem/backend/runtime.hpp")

    def test_the_list_of_components_is_right(self):
        self.write("cmake/opt_in_headers.txt", "backend/gone.hpp thrust", "backend/d.hpp opencl", "backend/d.txt cuda")
        self.expect("opt-in: cmake/opt_in_headers.txt names backend/gone.hpp", "says backend/d.hpp opencl",
                    "says backend/d.txt cuda")

    def test_includes_have_no_quotes(self):
        self.header("core/quotes.hpp", "#include \"a.hpp\"")
        self.expect("quotes: chunkmem/core/quotes.hpp")

    def test_what_is_included_exists(self):
        self.header("core/absent.hpp", "#include <chunkmem/core/nothing.hpp>")
        self.expect("no such header: chunkmem/core/absent.hpp includes chunkmem/core/nothing.hpp")

    def test_a_folder_includes_no_detail_of_another(self):
        self.header("core/detail/inner.hpp")
        self.header("tensor/foreign.hpp", "#include <chunkmem/core/detail/inner.hpp>")
        self.header("core/user.hpp", "#include <chunkmem/core/detail/inner.hpp>")
        self.expect("foreign detail: chunkmem/tensor/foreign.hpp")

    def test_a_header_has_pragma_once(self):
        self.source("include/chunkmem/core/a.hpp", "#include <vector>")
        self.expect("no pragma: chunkmem/core/a.hpp")

    def test_fwd_is_cheap(self):
        self.header("fwd.hpp", "#include <string>")
        self.expect("fwd.hpp includes string")

    def test_the_umbrella_is_cheap(self):
        for costly in ("thread", "chrono", "functional"):
            self.header("core/a.hpp", f"#include <{costly}>")
            self.expect(f"umbrella: chunkmem.hpp reaches <{costly}> through chunkmem/core/a.hpp")

    def test_the_umbrella_needs_the_standard_library_alone(self):
        self.header("tensor/c.hpp", "#include <Eigen/Core>")
        self.expect("umbrella: chunkmem.hpp reaches <Eigen/Core>", "foreign: chunkmem/tensor/c.hpp")

    def test_a_tree_has_headers(self):
        self.root /= "cmake"
        self.write("cmake/floors.txt", FLOORS)
        self.expect("no headers in ")


class Sources(TinyTree):
    def test_lines_of_cpp_end_at_120_columns(self):
        self.source("tests/core/a_test.cpp", "// " + 117 * "x")
        self.source("tests/core/b.cu", "", "// " + 117 * "ö")
        self.expect()
        self.source("tests/core/a_test.cpp", "// " + 118 * "x")
        self.source("tests/core/b.cu", "", "// " + 118 * "ö")
        self.expect("width: tests/core/a_test.cpp:2 has 121 columns", "width: tests/core/b.cu:3 has 121 columns")

    def test_approx_is_named_in_full(self):
        self.source("tests/core/a_test.cpp", "CHECK(x == Catch::Approx(1));")
        self.expect()
        self.source("tests/core/a_test.cpp", "CHECK(x == Approx(1));")
        self.expect("catch: tests/core/a_test.cpp:2 names Approx")

    def test_texts_are_matched_by_contains_substring(self):
        self.source("tests/core/a_test.cpp", 'CHECK_THAT(x, ContainsSubstring("a"));')
        self.expect()
        self.source("tests/core/a_test.cpp", 'CHECK_THAT(x, Catch::Matchers::Contains("a"));')
        self.expect("catch: tests/core/a_test.cpp:2 has Contains with a text")

    def test_the_first_tag_of_a_case_is_its_folder(self):
        self.source("tests/core/a_test.cpp", 'TEST_CASE("one \\"(a)\\"", "[core]")', "TEMPLATE_TEST_CASE(",
                    '    "two, "', '    "in two lines",', '    "[core][.slow]", int)')
        self.source("tests/package/third_party/b_test.cpp", 'TEST_CASE("no tag")')
        self.source("tests/core/c.cpp", 'out << "TEST_CASE(\\"printed\\", \\"[other]\\")";')
        self.expect()
        self.source("tests/core/a_test.cpp", 'TEST_CASE("one", "[old]")', 'TEST_CASE("two")', "",
                    'TEST_CASE_METHOD(rig, "three", "[.slow][core]")')
        self.expect("tag: tests/core/a_test.cpp:2 has the first tag [old], write [core] first",
                    "a_test.cpp:3 has no tag", "a_test.cpp:5 has the first tag [.slow]")

    def test_an_oracle_includes_nothing_that_it_judges(self):
        self.source("tests/core/sum_oracle.hpp", "#include <vector>")
        self.expect()
        self.source("tests/core/sum_oracle.hpp", "#include <chunkmem/core/a.hpp>", '#include "toy.hpp"')
        self.expect("sum_oracle.hpp includes chunkmem/core/a.hpp", "sum_oracle.hpp includes toy.hpp")

    def test_each_source_says_its_licence(self):
        self.source("tests/core/a_test.cpp")
        self.write("tests/compile_fail/b.cpp", "// expect: a message", f"// {LICENCE}")
        self.write("tools/c.sh", "#!/bin/sh", f"# {LICENCE}")
        self.write("cmake/d.cmake", f"# {LICENCE}")
        self.write("notes.md", "no source")
        self.expect()

    def test_a_source_without_licence_is_found(self):
        for path in ("core/a.hpp", "core/b.cuh"):
            self.write(f"include/chunkmem/{path}", "#pragma once")
        for path in ("examples/CMakeLists.txt", "cmake/d.cmake", "tools/e.py"):
            self.write(path, "")
        self.write("tools/f.sh", "#!/bin/sh", "echo", f"# {LICENCE}")
        self.write("tests/compile_fail/g.cpp", "// expect: a message")
        self.write("tests/core/h.cu", f"# {LICENCE}")
        self.expect("core/a.hpp lacks the line '// SPDX", "core/b.cuh lacks", "examples/CMakeLists.txt lacks the line '# SPDX",
                    "d.cmake lacks", "e.py lacks", "f.sh lacks", "g.cpp lacks", "h.cu lacks")

    def test_a_file_that_is_not_formatted_is_found(self):
        clang_format = check_format.formatter()
        if not clang_format:
            self.leave_out("the checker of the format: no clang-format of version 16 was found")
        shutil.rmtree(self.root / "include")
        self.write(".clang-format", "BasedOnStyle: Google")
        self.source("tests/core/a_test.cpp", "int one = 1;")
        self.assertEqual(check_format.violations_of(self.root, clang_format), [])
        self.source("tests/core/b_test.cpp", "int  two=2;")
        found = check_format.violations_of(self.root, clang_format)
        self.assertEqual(found, ["tests/core/b_test.cpp differs: clang-format-16 -i tests/core/b_test.cpp"])


class Workflow(TinyTree):
    def setUp(self):
        super().setUp()
        for path in (".ci/run", ".github/workflows/ci.yml", ".pre-commit-config.yaml", "tests/layout/check_map.py",
                     "tests/layout/check_layout.py"):
            self.write(path, (HERE.parents[1] / path).read_text(encoding="utf-8").rstrip("\n"))

    def replace(self, path, old, new):
        text = (self.root / path).read_text(encoding="utf-8")
        self.assertIn(old, text)
        self.write(path, text.replace(old, new))

    def test_the_workflow_of_the_tree_is_right(self):
        self.expect(checker=check_workflow)

    def test_the_workflow_runs_what_ci_runs(self):
        self.replace(".ci/run", "test asan tsan", "test asan")
        self.expect(".github/workflows/ci.yml has no step 'sh tests/run.sh test asan'", checker=check_workflow)

    def test_the_workflow_is_read_without_yaml(self):
        yaml, check_workflow.yaml = check_workflow.yaml, None
        self.addCleanup(setattr, check_workflow, "yaml", yaml)
        self.expect(checker=check_workflow)
        self.replace(".ci/run", "test asan tsan", "test asan")
        self.replace(".pre-commit-config.yaml", "name: floors, names, licences, widths", "# no name")
        (self.root / "tests/layout/check_map.py").unlink()
        self.expect(".github/workflows/ci.yml has no step 'sh tests/run.sh test asan'", "a hook has no name", "runs tests/layout/check_map.py, which",
                    checker=check_workflow)

    def test_files_are_yaml(self):
        if not check_workflow.yaml:
            self.leave_out("the check that files are YAML: this Python has no yaml (Debian: apt-get install python3-yaml)")
        self.replace(".github/workflows/ci.yml", "jobs:", "jobs: [")
        self.expect(".github/workflows/ci.yml is no YAML", checker=check_workflow)

    def test_hooks_run_files_that_exist(self):
        (self.root / "tests/layout/check_layout.py").unlink()
        self.expect("runs tests/layout/check_layout.py, which is not there", checker=check_workflow)


class Packages(TinyTree):
    """The files that make packages, beside one header and one file of each installed folder."""

    def setUp(self):
        super().setUp()
        root = HERE.parents[1]
        shutil.rmtree(self.root / "include")
        for path in ("CMakeLists.txt", "conanfile.py", "LICENSE", "docs/installing.md", "tools/plot.py", "tests/consumers", "cmake",
                     "include/chunkmem/core/version.hpp", "examples/max_model/machines", "tests/support", "tests/conformance"):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            if (root / path).is_dir():
                shutil.copytree(root / path, self.root / path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build"))
            else:
                shutil.copy(root / path, self.root / path)

    def replace(self, path, old, new):
        text = (self.root / path).read_text(encoding="utf-8")
        self.assertIn(old, text)
        self.write(path, text.replace(old, new, 1))

    def test_the_packages_of_the_tree_are_right(self):
        self.expect(checker=check_packages)

    def test_what_is_installed_goes_along_and_is_there(self):
        self.replace("conanfile.py", '"tools/plot.py", ', "")
        (self.root / "tests/support/catch.hpp").unlink()
        self.replace("cmake/install.cmake", "include(GNUInstallDirs)", 'set(more "${PROJECT_SOURCE_DIR}/bench")\ninstall(DIRECTORY "${more}/cases" DESTINATION '
                     '"${CMAKE_INSTALL_DATADIR}/chunkmem")')
        self.write("bench/cases/one.json", "{}")
        self.expect("installs tools/plot.py, which exports_sources of conanfile.py lacks", "installs tests/support/catch.hpp, which is not there",
                    "installs bench/cases/one.json, which exports_sources", "does not name the installed share/chunkmem/cases/", checker=check_packages)

    def test_what_the_build_reads_goes_along_and_patterns_fit(self):
        self.replace("conanfile.py", '"cmake/*"', '"cmake/[!i]*", "gone/*"')
        self.replace("CMakeLists.txt", "include(cmake/options.cmake)", "include(cmake/absent.cmake)")
        self.expect("CMakeLists.txt reads cmake/absent.cmake, which is not there", "reads cmake/install.cmake, which exports_sources",
                    "has gone/*, and no file fits", checker=check_packages)

    def test_the_page_names_what_is_installed_and_tested(self):
        self.replace("docs/installing.md", "`share/chunkmem/plot.py`", "`share/chunkmem/draw.py`")
        self.replace("docs/installing.md", "`consumers.conan` |", "")
        self.replace("docs/installing.md", "`consumers.cpm`", "`consumers.spm`")
        self.replace("docs/installing.md", "| `nccl` |", "| `rccl` |")
        self.replace("docs/installing.md", "chunkmem/0.1.0", "chunkmem/9.1.0")
        self.expect("does not name the installed share/chunkmem/plot.py", "names share/chunkmem/draw.py, which is not installed",
                    "1 ways name no test", "CPM names the test spm", "tests/consumers/cpm is the test of no way", "tests/consumers/conan is the test of no way",
                    "does not tell of the component nccl", "tells of the component rccl", "names version 9.1.0", checker=check_packages)

    def test_the_port_names_components(self):
        self.replace("cmake/vcpkg/ports/chunkmem/vcpkg.json", '"nccl": {', '"rccl": {')
        self.replace("cmake/vcpkg/ports/chunkmem/vcpkg.json", '"version": "0.', '"version": "7.')
        self.replace("tests/consumers/register.cmake", " fetch_content ", " ")
        self.expect("vcpkg.json names the component rccl", "usage does not name the feature rccl", "vcpkg.json has version 7.",
                    "register.cmake does not run fetch_content", checker=check_packages)


class Skips(TinyTree):
    def test_a_test_that_is_absent_without_a_word_is_found(self):
        self.write("tests/a/register.cmake", "find_program(tool tool)", "find_program(git git REQUIRED)", "if(git)", "  chunkmem_test(a.git COMMAND git)",
                   "endif()", "if(tool)", "  chunkmem_test(a COMMAND ${tool})", "else()", '  chunkmem_skipped_test(a "no tool")', "endif()")
        self.expect(checker=check_skips)
        self.write("tests/b/register.cmake", "find_program(tool tool)", "if(first)", "  chunkmem_test(b COMMAND b)", "elseif(tool AND more)",
                   "  foreach(each IN ITEMS 1 2)", "    chunkmem_test(b.${each} COMMAND ${tool})", "  endforeach()", "endif()",
                   "if(chunkmem_nvcc)", "  chunkmem_test(b.nvcc COMMAND b)", "else()", "  set(c d)", "endif()")
        self.expect("tests/b/register.cmake:2 registers a test only with tool", "tests/b/register.cmake:9 registers a test only with chunkmem_nvcc",
                    checker=check_skips)


class WordsAndMap(TinyTree):
    def test_private_words_are_found(self):
        words = ["".join(pieces) for pieces in (("/wo", "rk/"), ("../sha", "red"))]
        self.write("notes.md", f"see {words[0]}notes and {words[1]}/notes")
        self.expect(*(f"notes.md contains {word}" for word in words), checker=check_words)

    def test_each_folder_of_tests_is_on_the_map(self):
        self.write("tests/core/a_test.cpp")
        self.write("tests/README.md", "| `core/` | bytes |", "`core/a_test.cpp`")
        self.expect(checker=check_map)
        self.write("tests/cellar/b_test.cpp")
        self.expect("tests/README.md has no line for tests/cellar", checker=check_map)

    def test_each_path_on_the_map_exists(self):
        self.write("tests/core/a_test.cpp")
        self.write("tests/README.md", "| `core/` | bytes |", "| sums | `core/gone_test.cpp` |", "| `attic/` | old |")
        self.expect("names core/gone_test.cpp", "names attic/", checker=check_map)


class Uses(TinyTree):
    def test_a_class_without_a_use_is_found(self):
        self.expect(checker=check_uses)
        self.header("core/used.hpp", "namespace chunkmem::inline v0 {", "/// A clock.", "///", "///     clock{}.read();",
                    "template <class Tick>", "class clock {", "};", "/// Bytes, made by `bytes{4}`.", "struct bytes {", "};",
                    "struct tag {};", "class later;", "template <>", "struct bytes<int> {", "};", "namespace detail {", "class hidden {", "};", "}  // namespace detail",
                    "}  // namespace chunkmem::inline v0")
        self.expect(checker=check_uses)
        self.header("core/unused.hpp", "namespace chunkmem::inline v0 {", "/// A clock.", "class clock {", "};",
                    "struct silent {", "};", "struct short_one { int member = 0; };", "}  // namespace chunkmem::inline v0")
        self.expect("unused.hpp:5 clock shows no use", "unused.hpp:7 silent", "unused.hpp:9 short_one",
                    checker=check_uses)


class Programs(TinyTree):
    def run_checker(self, name):
        return subprocess.run([sys.executable, "-B", HERE / name, self.root], capture_output=True, text=True, check=False)

    def test_a_program_fails_with_every_violation(self):
        self.assertEqual(self.run_checker("check_layout.py").returncode, 0)
        self.header("core/quotes.hpp", "#include \"a.hpp\"")
        self.source("include/chunkmem/core/lonely.hpp")
        answer = self.run_checker("check_layout.py")
        self.assertEqual(answer.returncode, 1)
        for sentence in ("layout: 2 violations", "quotes: ", "no pragma: "):
            self.assertIn(sentence, answer.stdout)

    def test_an_empty_tree_is_no_success(self):
        self.root /= "nowhere"
        self.root.mkdir()
        self.assertEqual(self.run_checker("check_words.py").returncode, 1)


class BytesOfRanks(TinyTree):
    """Whoever gives bytes over ranks is named, with a case that is there."""

    CODE = """
    namespace chunkmem::inline v0 {
    template <class T> requires(sizeof(T) > 1 && true) class model : public base<T> {
      int* hidden();
     public:
      explicit model(int a, int b = int{2}) noexcept : a_{[&] { return a; }()}, b_(b) { begin(); }
      /// auto* no_function();
      template <class Element = int> [[nodiscard]] pin_type<Element> acquire(int wanted = 3) { return {wanted}; }
      pin_type<int> acquire(char*);
      Element* data() const&& = delete;
      operator const char*() const { return "}{"; }
      [[nodiscard]] auto view() const -> std::span<int> try { return {}; } catch (...) { throw; }
      [[nodiscard]] int size() const { return sizeof(int*); }
      void fill(std::span<int> from);
      struct run { std::span<const int> input{}; int count = 0; };
     private:
      std::span<int> kept_;
      struct secret { int* bytes = nullptr; };
    };
    namespace detail { inline int* unseen() { return nullptr; } }
    inline std::byte* seen(int) { return nullptr; }
    }
    """
    FOUND = ("model::acquire (2)", "model::operator const char * (1)", "model::view (1)", "model::run::input (1)",
             "seen (1)")

    def setUp(self):
        super().setUp()
        self.header("sharding/model.hpp", self.CODE)
        self.write("tests/sharding/a_test.cpp", 'TEST_CASE("a rank that reads "', '"alone", "[sharding]") {}')
        self.known = [f"sharding/model.hpp {each} | sharding/a_test.cpp: a rank that reads alone" for each in self.FOUND]
        self.write(check_bytes_of_ranks.TABLE, "# a comment", *self.known)

    def test_each_is_found_and_known(self):
        found = check_bytes_of_ranks.sites_of(self.root)
        self.assertEqual(sorted(found), sorted(f"sharding/model.hpp {each}" for each in self.FOUND))
        self.expect(checker=check_bytes_of_ranks)

    def test_one_that_nobody_knows(self):
        self.header("pipeline/stage.hpp", "struct stage { std::byte* place_of(int); };")
        self.expect("pipeline/stage.hpp stage::place_of (1) gives bytes", checker=check_bytes_of_ranks)

    def test_one_more_overload(self):
        self.header("sharding/model.hpp", self.CODE.replace("pin_type<int> acquire", "pin_type<int> acquire(int, int);\n      "
                                                            "pin_type<int> acquire"))
        self.expect("model::acquire (3) gives bytes", "model::acquire (2) is no function", checker=check_bytes_of_ranks)

    def test_one_that_is_gone(self):
        self.write(check_bytes_of_ranks.TABLE, *self.known, "sharding/model.hpp gone (1) | a reason that is long enough")
        self.expect("gone (1) is no function that gives bytes", checker=check_bytes_of_ranks)

    def test_a_case_that_is_not_there_and_no_reason(self):
        self.write(check_bytes_of_ranks.TABLE, *self.known[1:-1],
                   "sharding/model.hpp seen (1) | none",
                   "sharding/model.hpp model::acquire (2) | sharding/a_test.cpp: another case")
        self.expect("there is no 'another case'", "neither a case nor a reason", checker=check_bytes_of_ranks)

    def test_headers_that_are_not_there(self):
        shutil.rmtree(self.root / "include")
        self.expect("the headers are not read", checker=check_bytes_of_ranks)


if __name__ == "__main__":
    unittest.main()
