#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/count_code.py counts a tiny tree as one counts it by hand.

    python3 tests/layout/check_the_counts.py
"""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import count_code  # noqa: E402

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"
MANAGER = LICENCE + r"""#pragma once

#include <chunkmem/core/base.hpp>
#include <vector>

/// A comment, then code that looks like some.
template <class Element, chunk_layout Layout = append<int>>
  requires requires(Element one) { one.size(); }
class basic_manager : public keeper<core_base<Element>>, private hidden {
 public:
  using keeper_type = keeper<core_base<Element>>;
  using keeper_type::keeper_type, keeper_type::kept;
  explicit basic_manager(int first) : first_{first}, rest_(first) { this->add(1, 2); }
  ~basic_manager() = default;
  basic_manager& operator=(const basic_manager&) = delete;
  template <class Other>
    requires(!element<Other>)
  void add(std::uint32_t count, const std::uint32_t& start = {}) noexcept try {
    for (std::uint32_t index = 0; index < count; ++index) use(static_cast<std::uint32_t>(index), std::uint32_t{1});
  } catch (...) {
  }
  void add(std::span<const std::uint32_t> all, [[maybe_unused]] std::uint64_t most);
  [[nodiscard]] decltype(auto) report() const { return [](std::uint32_t) { return "public: int no_member; // */"; }; }
  static constexpr int most = 3, least{0};
  enum class kind : std::uint8_t { one, two };

 private:
  int first_ = 1'000'000, rest_;  // this->is->no use
};
"""
BASE = LICENCE + r"""#pragma once
/* two
   lines */
struct core_base { int of_core; };
template <class Core>
class keeper : public Core {
 public:
  int kept;
 protected:
  int not_public;
};
class hidden { public: int of_hidden; };
"""


class Lines(unittest.TestCase):
    def lines(self, text):
        return count_code.filled_lines(count_code.INCLUDE.sub("", count_code.code_of(text)))

    def test_comments_blanks_and_includes_are_no_code(self):
        self.assertEqual(self.lines("int a;  // one\n\n // two\n/* three\n\n four */ int b;\n# include <x>\n"), 2)

    def test_a_comment_in_a_literal_is_none(self):
        for literal in (r'"/*"', r'"\"/*"', r"""'"', "/*" """, r"""'\'', '/', "/*" """, 'R"(" /*)"', 'u8R"x()" /*)x"',
                        """1'000, "/*" """):
            self.assertEqual(self.lines(f"f({literal});\nint b;  // */\n"), 2, literal)

    def test_a_literal_in_a_comment_is_none(self):
        self.assertEqual(self.lines("// don't \"\nint b;\n/* \" */\nint c;\n// goes on \\\n int no_code;\n"), 2)


class Counts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path, text in (("include/chunkmem/manager/m.hpp", MANAGER), ("include/chunkmem/core/base.hpp", BASE),
                           ("include/chunkmem/manager/n.cuh", "#include <chunkmem/manager/m.hpp>\n"),
                           ("tests/a_test.cpp", '// "\nint a;\n'), ("tests/b.hpp", "int b;\n"),
                           ("tests/c.py", "c = 1\n")):
            (pathlib.Path(folder.name) / path).parent.mkdir(parents=True, exist_ok=True)
            (pathlib.Path(folder.name) / path).write_text(text, encoding="utf-8")
        self.tree = count_code.Tree(folder.name)

    def test_each_row(self):
        self.assertEqual(list(dict(self.tree.rows()).values()), [3, 2, 33, 23, 2, 3, 2, 3, 1, 1, 8, 3, "8 %"])

    def test_public_members_are_names_of_the_class_and_its_public_bases(self):
        self.assertEqual(self.tree.types.public_members("basic_manager"),
                         {"keeper_type", "kept", "add", "report", "most", "least", "kind", "of_core"})

    def test_a_chain_ends_where_it_comes_back(self):
        self.assertEqual(count_code.longest_chain({"a": ["b"], "b": ["c", "std"], "c": ["a"]}), 3)


if __name__ == "__main__":
    unittest.main()
