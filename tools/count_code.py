#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what is to be read in a tree, as a table with a column for each tree: for comparisons of before and after.

    python3 tools/count_code.py [<top of a tree> ...]      without an argument: the tree around this file

Lines of code are lines that are more than blanks, a comment or an include. A comment in a string is no comment. A chain
of includes counts headers of the library, a chain of bases its classes. Where a base is a template parameter, its
arguments are looked up: `engine<core>` has the base `core`. Public members are names, with those of public bases:
overloads are one name, and constructors, destructors and operators have none. A raw 32-bit parameter has the type
std::uint32_t, perhaps as const or by reference. The share of comments leaves out lines about the licence.
"""
import pathlib
import re
import sys

HEADERS = (".hpp", ".cuh")
SOURCES = (*HEADERS, ".cpp", ".cu")
LEXEMES = re.compile(r"""
    (?P<comment> //(?:\\\r?\n|[^\n])* | /\*.*?\*/)
  | (?P<literal> (?:u8|[uUL])?R"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+')
  | \.?\d(?:'\w|[eEpP][+-]|[\w.])*                      # a number, whose ' begins no character
  | \w+""", re.DOTALL | re.VERBOSE)
TOKEN = re.compile(r"\"+|\w+|::|->|<<|<=|>=|==|&&|\|\||\S")
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*", re.MULTILINE)
LIBRARY_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(chunkmem/[^>]+)>", re.MULTILINE)
LICENCE = re.compile(r"^(//|#) SPDX-License-Identifier:.*", re.MULTILINE)
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
NO_NAMES = ("typename", "template", "const", "virtual", "public", "protected", "private", "class", "struct", "enum",
            "final")
ACCESSES = ("public", "protected", "private")
RAW = ("std", "::", "uint32_t")


def code_of(text):
    """The text without comments. Literals become quotation marks, so that nothing in them is taken for code."""
    def blanked(lexeme):
        if lexeme["comment"]:
            return re.sub(r"[^\n]+", " ", lexeme[0])
        return re.sub(r"\S", '"', lexeme[0]) if lexeme["literal"] else lexeme[0]
    return LEXEMES.sub(blanked, text)


def filled_lines(text):
    return sum(1 for line in text.splitlines() if line.strip())


def end_of(tokens, begin, openers="([{"):
    """The place after the bracket that closes the one at `begin`. With "<" among the openers: of template arguments."""
    waiting = []
    for place in range(begin, len(tokens)):
        if tokens[place] in openers:
            waiting.append(CLOSING[tokens[place]])
        elif tokens[place] == waiting[-1]:
            waiting.pop()
            if not waiting:
                return place + 1
    return len(tokens)


def items_of(tokens, openers="([{<"):
    """The tokens between commas that no bracket surrounds."""
    items, place = [[]], 0
    while place < len(tokens):
        if tokens[place] == ",":
            items.append([])
            place += 1
        else:
            end = end_of(tokens, place, openers) if tokens[place] in openers else place + 1
            items[-1] += tokens[place:end]
            place = end
    return items


def before(tokens, *marks):
    """The tokens before the first of these marks."""
    return tokens[:min((tokens.index(mark) for mark in marks if mark in tokens), default=len(tokens))]


def is_name(token):
    return token[0].isalpha() or token[0] == "_"


def name_of(type_tokens):
    """The name of a type without its namespaces and arguments."""
    name = ""
    for token in type_tokens:
        if token == "<":
            break
        if is_name(token) and token not in NO_NAMES:
            name = token
    return name


class Class:
    """A class as its definition says it."""

    def __init__(self, kind, parameters, bases, body):
        self.parameters = parameters
        self.bases = bases
        self.body = body
        self.default = "public" if kind == "struct" else "private"
        said = [next((word for word in base if word in ACCESSES), self.default) for base in bases]
        self.public_bases = [base for base, access in zip(bases, said) if access == "public"]


class Types:
    """The classes and aliases of some sources, by name."""

    def __init__(self, token_lists):
        self.classes, self.aliases = {}, {}
        for tokens in token_lists:
            self.read(tokens)
        self.arguments = {}  # arguments of class templates whose base is a parameter
        wanted = {name for name, known in self.classes.items() for each in known
                  if any(name_of(base) in each.parameters for base in each.bases)}
        for tokens in token_lists:
            for place, token in enumerate(tokens[:-1]):
                if token in wanted and tokens[place + 1] == "<":
                    given = tokens[place + 2:end_of(tokens, place + 1, "([{<") - 1]
                    self.arguments.setdefault(token, []).append(items_of(given))

    def read(self, tokens):
        parameters, place = [], 0
        while place < len(tokens):
            token = tokens[place]
            if token == "template" and tokens[place + 1:place + 2] == ["<"]:
                end = end_of(tokens, place + 1, "([{<")
                parameters = [name_of(before(item, "=")[-1:]) for item in items_of(tokens[place + 2:end - 1])]
                place = end
                continue
            if token == "using" and tokens[place + 2:place + 3] == ["="]:
                target = name_of(before(tokens[place + 3:place + 99], ";"))
                self.aliases.setdefault(tokens[place + 1], []).append(target)
            elif token in ("class", "struct") and (place == 0 or tokens[place - 1] not in ("enum", "friend", "<", ",")):
                self.read_class(tokens, place, parameters)
            if token in ";{}":
                parameters = []
            place += 1

    def read_class(self, tokens, place, parameters):
        kind, place, name = tokens[place], place + 1, ""
        while place < len(tokens) and tokens[place] not in (";", ":", "{", "(", ")", "=", ">", ","):
            if tokens[place] in ("[", "<"):
                place = end_of(tokens, place, "([{<")
                continue
            if is_name(tokens[place]) and tokens[place] != "final":
                name = tokens[place]
            place += 1
        bases = []
        if tokens[place:place + 1] == [":"]:
            end = tokens.index("{", place)
            bases, place = items_of(tokens[place + 1:end]), end
        if name and tokens[place:place + 1] == ["{"]:
            body = tokens[place + 1:end_of(tokens, place) - 1]
            self.classes.setdefault(name, []).append(Class(kind, parameters, bases, body))

    def named_bases(self, name, public_only=False):
        """The names of all bases that a class of this name may have."""
        found = set()
        for each in self.classes.get(name, ()):
            for base in each.public_bases if public_only else each.bases:
                base_name = name_of(base)
                if base_name not in each.parameters:
                    found.add(base_name)
                    continue
                for given in self.arguments.get(name, ()):
                    if each.parameters.index(base_name) < len(given):
                        found.add(name_of(given[each.parameters.index(base_name)]))
        return found

    def longest_chain(self):
        graph = {name: self.named_bases(name) for name in self.classes}
        for name, targets in self.aliases.items():
            if name not in graph:
                graph[name] = set(targets)
        return longest_chain(graph, lambda name: name in self.classes)

    def public_members(self, name, seen=()):
        names = set()
        for each in self.classes.get(name, ()):
            names |= public_names(each, name)
        for base in self.named_bases(name, public_only=True) - {*seen, name}:
            names |= self.public_members(base, (*seen, name))
        return names


def declarations_of(body):
    """(public, protected, private or none, tokens) of each declaration of a class. Bodies of functions are left out."""
    access, declaration, place = None, [], 0
    while place < len(body):
        token = body[place]
        if not declaration and token in ACCESSES and body[place + 1:place + 2] == [":"]:
            access, place = token, place + 2
        elif token == ";":
            yield access, declaration
            declaration, place = [], place + 1
        elif token == "{":
            of_requires = "requires" in declaration[-1:] or declaration[-2:-1] == ["requires"]
            declaration, place = [*declaration, "{}"], end_of(body, place)
            if not of_requires and body[place:place + 1] not in ([], [","], [";"], ["{"], ["catch"], ["&&"], ["||"]):
                yield access, declaration
                declaration = []
        elif token == "(":
            declaration, place = [*declaration, "()"], end_of(body, place)
        elif token == "[":
            place = end_of(body, place)
        elif token == "<" and (declaration[-1:] == ["template"] or declaration[-1:] and is_name(declaration[-1])):
            place = end_of(body, place, "([{<")
            if declaration[-1] == "template":
                declaration.pop()
        else:
            declaration.append(token)
            place += 1
    if declaration:
        yield access, declaration


def public_names(each, class_name):
    names = set()
    for access, declaration in declarations_of(each.body):
        if (access or each.default) == "public":
            names |= names_of(declaration)
    return names - {class_name}


def names_of(declaration):
    """The names that a declaration gives to a class."""
    while declaration[:1] == ["requires"]:  # requires(...), or requires requires(...) {...}
        declaration = declaration[1:]
        while declaration and declaration[0] in ("()", "{}", "&&", "||", "requires"):
            declaration = declaration[1:]
    for word in ("alignas", "explicit", "decltype", "noexcept"):
        while word in declaration and declaration[declaration.index(word) + 1:][:1] == ["()"]:
            del declaration[declaration.index(word) + 1]
    if not declaration or declaration[0] in ("static_assert", "friend") or {"operator", "~"}.intersection(declaration):
        return set()
    if declaration[0] == "using":
        if "=" in declaration:
            return {declaration[1]}
        items = items_of(declaration[1:], openers="")
        return {item[-1] for item in items if item[-1] not in item[:-1]}  # base::base is a constructor
    if declaration[0] in ("class", "struct", "enum") and "()" not in declaration:
        return {name_of(before(declaration, "{}", ":"))}
    if "()" in declaration and "=" not in before(declaration, "()"):
        return {before(declaration, "()")[-1]}
    heads = [before(item, "=", "{}") for item in items_of(declaration, openers="")]
    return {head[-1] for head in heads if head and is_name(head[-1])}


def longest_chain(graph, counts=lambda node: True):
    """The most nodes, of those that count, on a path."""
    known = {}

    def length(node):
        if node not in known:
            known[node] = 0  # where a cycle comes back to it
            known[node] = counts(node) + max(map(length, graph.get(node, ())), default=0)
        return known[node]
    return max(map(length, graph), default=0)


def raw_parameters(tokens):
    """Parameters of functions, lambdas and requires-expressions whose type is std::uint32_t itself."""
    count = 0
    for place, token in enumerate(tokens):
        if token != "(" or tokens[place - 1] in ("for", "if", "while", "switch", "sizeof", "alignof", "decltype"):
            continue
        for item in items_of(tokens[place + 1:end_of(tokens, place) - 1]):
            item = [each for each in item if each not in ("const", "&", "*", "maybe_unused", "[", "]")]
            rest = item[3:]
            count += tuple(item[:3]) == RAW and (not rest or is_name(rest[0]) and rest[1:2] in ([], ["="]))
    return count


class Tree:
    """The sources of a tree."""

    def __init__(self, top):
        self.top = pathlib.Path(top)
        self.text = self.read("include", HEADERS)
        if not self.text:
            sys.exit(f"count_code: {top} has no headers in include/")
        self.code = {path: code_of(text) for path, text in self.text.items()}
        self.tokens = {path: TOKEN.findall(code) for path, code in self.code.items()}
        self.includes = {path: LIBRARY_INCLUDE.findall(code) for path, code in self.code.items()}
        self.types = Types(list(self.tokens.values()))

    def read(self, folder, endings):
        paths = sorted(path for path in (self.top / folder).rglob("*") if path.name.endswith(endings))
        return {str(path.relative_to(self.top / folder)): path.read_text(encoding="utf-8") for path in paths}

    def rows(self):
        def of_manager(by_path):
            return {path: value for path, value in by_path.items() if path.startswith("chunkmem/manager/")}

        def lines(code):
            return sum(filled_lines(INCLUDE.sub("", each)) for each in code.values())

        def uses_of_this(tokens):
            return sum(pair == ("this", "->") for each in tokens.values() for pair in zip(each, each[1:]))

        inside = of_manager(self.includes)
        inside = {path: [each for each in included if each in inside] for path, included in inside.items()}
        tests = {path: code_of(text) for path, text in self.read("tests", SOURCES).items()}
        unlicensed = sum(filled_lines(LICENCE.sub("", text)) for text in self.text.values())
        comments = unlicensed - sum(map(filled_lines, self.code.values()))
        yield "headers in include/", len(self.text)
        yield "headers in include/chunkmem/manager/", len(of_manager(self.text))
        yield "lines of code in include/", lines(self.code)
        yield "lines of code in manager/", lines(of_manager(self.code))
        yield "lines of code in tests/", lines(tests)
        yield "longest chain of includes in include/", longest_chain(self.includes)
        yield "longest chain of includes inside manager/", longest_chain(inside)
        yield "longest chain of bases", self.types.longest_chain()
        yield "uses of `this->` in include/", uses_of_this(self.tokens)
        yield "uses of `this->` in manager/", uses_of_this(of_manager(self.tokens))
        yield "public members of `basic_manager`", len(self.types.public_members("basic_manager"))
        yield "raw 32-bit parameters in manager/", sum(map(raw_parameters, of_manager(self.tokens).values()))
        yield "comment lines in include/, of all lines that are not blank", f"{100 * comments / unlicensed:.0f} %"


def main():
    tops = sys.argv[1:] or [pathlib.Path(__file__).resolve().parents[1]]
    columns = [dict(Tree(top).rows()) for top in tops]
    print("| | " + " | ".join(map(str, tops)) + " |\n|---|" + "--:|" * len(tops))
    for row in columns[0]:
        cells = [f"{each[row]:,}" if isinstance(each[row], int) else each[row] for each in columns]
        print(f"| {row} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
