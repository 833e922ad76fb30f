#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Switches of mutants (tools/mutant_switches.py) stand around the right expressions of a small header, and it compiles.

    python3 tests/layout/check_mutants.py [compiler]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import mutant_switches

COMPILER = sys.argv.pop() if len(sys.argv) > 1 else None
LINES = """#pragma once
struct group { int id; };
inline int sum(const int* from, int count, bool doubled = false)
{
  int result = 0;
  for (int at = 0; at < count; ++at) {  // a comment (with a bracket
    if (from[at] == ')') continue;
    if (doubled) result += from[at];
    result += from[at] * 1;
  }
  return result + group{0}.id;
}
"""
# A line, what is changed in it, into what, the switch, and the sum of 1, ')', 3 then: 4 without a mutant. None: no end.
MUTANTS = (
    (3, "false", "true", "doubled = (on(0) ? (true) : (false)))", 8),
    (5, "0", "1", "result = (on(1) ? (1) : (0));", 5),
    (6, " < ", " <= ", "; (on(2) ? (at <= count) : (at < count)); ", 11),
    (6, "++", "--", "; (on(3) ? (--at) : (++at))) {", None),
    (7, " == ", " != ", "if ((on(4) ? (from[at] != ')') : (from[at] == ')'))) ", 41),
    (7, "continue;", "break;", ") { if (on(5)) break; continue; }", 1),
    (8, " += ", " -= ", "if (doubled) (on(6) ? (result -= from[at]) : (result += from[at]));", 4),
    (9, "1", "2", "result += (on(7) ? (from[at] * 2) : (from[at] * 1));", 8),
    (11, " + ", " - ", "return (on(8) ? (result - group{0}.id) : (result + group{0}.id));", 4),
    (11, "0", "1", "group{(on(9) ? (1) : (0))}.id", 5))
PROGRAM = """#include <chunkmem_mutant.hpp>
#include <small.hpp>
#include <iostream>
int main()
{
  const int values[] = {1, ')', 3, 7};
  std::cout << sum(values, 3);
}
"""


def mutants():
    lines = LINES.splitlines()
    for line, was, now, *_ in MUTANTS:
        begin = lines[line - 1].index(was)
        yield {"header": "small.hpp", "line": line, "begin": begin, "end": begin + len(was), "change": now}


class Switches(unittest.TestCase):
    def test_a_switch_stands_around_the_innermost_expression(self):
        for number, (mutant, (line, _, _, wanted, _)) in enumerate(zip(mutants(), MUTANTS)):
            begin, end, text = mutant_switches.switched(LINES, mutant, number)
            changed = (LINES[:begin] + text + LINES[end:]).replace("::chunkmem_mutant::", "").splitlines()
            self.assertIn(wanted, changed[line - 1])

    def test_a_switch_goes_out_by_one_bracket_and_not_out_of_a_statement(self):
        in_braces, in_a_condition = list(mutants())[9], list(mutants())[4]
        begin, end, text = mutant_switches.switched(LINES, in_braces, 9, brackets_out=1)
        self.assertEqual(LINES[begin:end], "result + group{0}.id")
        self.assertTrue(text.endswith("(result + group{1}.id) : (result + group{0}.id))"), text)
        self.assertIsNone(mutant_switches.switched(LINES, in_a_condition, 4, brackets_out=1))

    def test_messages_of_the_compiler_name_switches(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "small.hpp").write_text(LINES, encoding="utf-8")
            switches = mutant_switches.Switches(pathlib.Path(folder), dict(enumerate(mutants())))
            written = (pathlib.Path(folder) / "small.hpp").stat().st_mtime_ns
            self.assertFalse(switches.mend("unit.cpp:1:1: error: no member named 'x'\n  on(3).x;\n"))
            self.assertEqual((pathlib.Path(folder) / "small.hpp").stat().st_mtime_ns, written)
            self.assertTrue(switches.mend("a.hpp:1:2: error: no constant\n  x;\na.hpp:3:3: note: in call to 'on(0)'\n"))
            self.assertTrue(switches.mend("a.hpp:1:2: error: narrow\n  group{(::chunkmem_mutant::on(9) ? (1) : (0))}\n"))
            self.assertFalse(switches.is_whole(0))
            text = (pathlib.Path(folder) / "small.hpp").read_text(encoding="utf-8")
            self.assertIn("on_at_run_time(0)", text)
            self.assertIn("(result + group{1}.id)", text)

    @unittest.skipUnless(COMPILER, "no compiler is given")
    def test_one_program_is_each_mutant(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "small.hpp").write_text(LINES, encoding="utf-8")
            (folder / "main.cpp").write_text(PROGRAM, encoding="utf-8")
            mutant_switches.Switches(folder, dict(enumerate(mutants())))
            program = folder / "main"
            subprocess.run([COMPILER, "-std=c++20", f"-I{folder}", folder / "main.cpp", "-o", program], check=True)
            sums = {None: 4, **{number: mutant[4] for number, mutant in enumerate(MUTANTS) if mutant[4] is not None}}
            for number, wanted in sums.items():
                environment = {**os.environ, **({} if number is None else {"CHUNKMEM_MUTANT": str(number)})}
                seen = subprocess.run([program], env=environment, capture_output=True, check=True).stdout
                self.assertEqual(int(seen), wanted, f"mutant {number}")


if __name__ == "__main__":
    unittest.main()
