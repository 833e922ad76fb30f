#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many mutants in one copy of the headers, each behind a switch that is read when the program runs (mutants.py).

The innermost expression E around a mutant becomes `(on(17) ? (mutant of E) : (E))`: one rule for operators, numbers and
words alike. Expressions are found by their brackets and by what stands between expressions, not by a grammar: the
compiler has the last word, and an expression that it does not take gets a switch one bracket further out.
"""
import re

HEADER = "chunkmem_mutant.hpp"
TEXT = """// The mutant that the variable CHUNKMEM_MUTANT names is switched on.
#pragma once
#include <cstdlib>
#include <type_traits>
namespace chunkmem_mutant {
inline long chosen()
{
  static const long number = std::getenv("CHUNKMEM_MUTANT") ? std::atol(std::getenv("CHUNKMEM_MUTANT")) : -1;
  return number;
}
// No constant, so that no mutant is lost where the compiler computes: the compiler says where one is needed.
constexpr bool on(long number) { return number >= 0 && number == chosen(); }
constexpr bool on_at_run_time(long number) { return !std::is_constant_evaluated() && number == chosen(); }
}  // namespace chunkmem_mutant
"""
OPENING, CLOSING = "([{", ")]}"
COMMENT = r"//[^\n]*"
LITERAL = r'"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\])'"
BRACKETS_OUT = 3  # at most this many brackets further out
NEEDS_A_CONSTANT = re.compile(r"in call to '[\w:]*\bon\((\d+)\)'")
ERROR = re.compile(r" error: [^\n]*\n[^\n]*\bchunkmem_mutant::on\w*\((\d+)\)")


def blanked(text, pattern, blank):
    return re.sub(pattern, lambda found: blank * len(found[0]), text)


def partner(mask, at, step):
    """Where the bracket is that belongs to the one at `at`."""
    depth = 0
    while True:
        depth += (mask[at] in OPENING) - (mask[at] in CLOSING)
        if depth == 0:
            return at
        at += step


def separates(mask, at):
    """Whether expressions end at this character: no part of ::, ==, <= and the like."""
    if mask[at] in "=:":
        return mask[at - 1] not in {"=": "=!<>", ":": ":"}[mask[at]] and mask[at + 1] != mask[at]
    return mask[at] in ";,?"


def begin_of_expression(mask, at):
    """Where the expression begins that goes on at `at`."""
    begin = at
    while begin > 0 and not separates(mask, begin - 1) and mask[begin - 1] not in OPENING:
        if re.search(r"\b(return|else|do|throw|case)$", mask[max(0, begin - 7):begin]) and not mask[begin].isalnum():
            break
        if mask[begin - 1] not in CLOSING:
            begin -= 1
            continue
        opening = partner(mask, begin - 1, -1)
        ends_a_block = mask[begin - 1] == "}" and re.match(r" *\n", mask[begin:])
        if ends_a_block or is_of_a_statement(mask, opening):
            break
        begin = opening
    return begin + len(mask[begin:at]) - len(mask[begin:at].lstrip())


def end_of_expression(mask, at):
    end = at
    while not separates(mask, end) and mask[end] not in CLOSING:
        end = partner(mask, end, 1) + 1 if mask[end] in OPENING else end + 1
    return at + len(mask[at:end].rstrip())


def is_of_a_statement(mask, opening):
    """Whether the bracket is the one of an `if` or a loop."""
    return re.search(r"\b(if|for|while|switch)( constexpr)? ?$", mask[max(0, opening - 20):opening]) is not None


def one_bracket_further(mask, first):
    """The expression around the bracket in which `first` is, or None."""
    opening = first - 1
    while mask[opening] not in OPENING:
        opening = partner(mask, opening, -1) - 1 if mask[opening] in CLOSING else opening - 1
    closing = partner(mask, opening, 1)
    is_block = mask[opening] == "{" and ";" in mask[opening:closing]
    if is_block or is_of_a_statement(mask, opening):
        return None
    return begin_of_expression(mask, opening), end_of_expression(mask, closing + 1)


def place_of(text, mutant):
    offset = sum(map(len, text.splitlines(keepends=True)[:mutant["line"] - 1]))
    return offset + mutant["begin"], offset + mutant["end"]


def switched(text, mutant, number, brackets_out=0, word="on"):
    """The place and the text of a switch: (begin, end, text). None where there is no such expression."""
    begin, end = place_of(text, mutant)
    on = f"::chunkmem_mutant::{word}({number})"
    if mutant["change"] in ("break;", "continue;"):
        return None if brackets_out else (begin, end, f"{{ if ({on}) {mutant['change']} {text[begin:end]} }}")
    code = blanked(text, COMMENT, " ")
    mask = blanked(code, LITERAL, "_")
    first, last = begin_of_expression(mask, begin), end_of_expression(mask, end)
    for _ in range(brackets_out):
        outer = one_bracket_further(mask, first)
        if outer is None:
            return None
        first, last = outer
    was, now = code[first:last], code[first:begin] + mutant["change"] + code[end:last]
    one_line = re.sub(r"\s*\n\s*", " ", f"({on} ? ({now}) : ({was}))")
    return first, last, one_line + "\n" * was.count("\n")


class Switches:
    """The mutants of a copy of the headers. `is_whole`: the switch is the mutant, in constants too."""

    def __init__(self, include, mutants):
        self.include = include
        self.mutants = mutants
        headers = {mutant["header"] for mutant in mutants.values()}
        self.texts = {name: (include / name).read_text(encoding="utf-8") for name in headers}
        self.brackets_out = dict.fromkeys(mutants, 0)
        self.off_in_constants = set()
        (include / HEADER).write_text(TEXT, encoding="utf-8")
        self.write()

    def has(self, number):
        return self.brackets_out[number] is not None

    def is_whole(self, number):
        return self.has(number) and number not in self.off_in_constants

    def write(self):
        for name, text in self.texts.items():
            begin_of_last = len(text)
            for switch, number in sorted(self.of_header(name), reverse=True):
                begin, end, now = switch
                if end > begin_of_last:  # two mutants in one expression: one of them has no switch
                    self.brackets_out[number] = None
                    continue
                text, begin_of_last = text[:begin] + now + text[end:], begin
            (self.include / name).write_text(text, encoding="utf-8")

    def of_header(self, name):
        for number, mutant in self.mutants.items():
            while mutant["header"] == name and self.has(number):
                word = "on_at_run_time" if number in self.off_in_constants else "on"
                switch = switched(self.texts[name], mutant, number, self.brackets_out[number], word)
                if switch:
                    yield switch, number
                    break
                self.go_out(number)

    def go_out(self, number):
        out = self.brackets_out[number] + 1
        self.brackets_out[number] = out if out <= BRACKETS_OUT else None

    def mend(self, errors):
        """Changes the switches that errors of the compiler are about. False where they are about no switch."""
        wants_constants = {int(number) for number in NEEDS_A_CONSTANT.findall(errors)} - self.off_in_constants
        others = {int(number) for number in ERROR.findall(errors)} - wants_constants
        self.off_in_constants |= wants_constants
        for number in filter(self.has, others):
            self.go_out(number)
        changed = bool(wants_constants | others)
        if changed:  # else the precompiled header stays valid
            self.write()
        return changed
