#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public function over ranks or stages that gives bytes is known, and a test tries it where other ranks fail.

    python3 tests/layout/check_bytes_of_ranks.py [tree]

Bytes that ranks or stages make together can be missing. So every public function of sharding/ and pipeline/, and of the
parts of a manager that take part, whose result is a pin, a span, a pointer or a type that is not written down, stands in
bytes_of_ranks.txt; and so do public members that are spans or pointers. Each stands there with its number of overloads,
and with the case that tries it or the reason why it holds no bytes of other ranks. A line of a function that is gone is
a violation too.
"""
import collections
import re

import tree

FOLDERS = ("sharding", "pipeline")
PARTS = ("manager/basic_manager.hpp", "manager/pin.hpp", "manager/engine.hpp", "manager/gathered_chunks.hpp",
         "manager/update_session.hpp")
TABLE = "tests/layout/bytes_of_ranks.txt"

TOKEN = re.compile(r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\w+|::|->|&&|\|\||\S')
COMMENT = re.compile(r"/\*(?:.|\n)*?\*/|//[^\n]*|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
GIVES = re.compile(r"\*|\b(?:auto|decltype|span|held_span|lease|opened|\w*pin|\w*pin_type|\w*gradient|\w*_run|\w*token|"
                   r"\w*bytes_of\w*|\w*place\w*)\b")
SPECIFIERS = {"inline", "constexpr", "static", "virtual", "explicit", "friend", "const", "typename", "template"}


def tokens_of(text):
    """The words and signs of a header, without comments and directives."""
    return TOKEN.findall(COMMENT.sub(" ", text))


def after(tokens, index, opens, closes):
    """The index behind what `opens` at index and `closes`."""
    depth = 0
    while index < len(tokens):
        depth += (tokens[index] == opens) - (tokens[index] == closes)
        index += 1
        if depth == 0:
            break
    return index


def without_template(declaration):
    """A declaration without `template <...>`, its requirements in front and attributes."""
    out = []
    index = 0
    while index < len(declaration):
        word = declaration[index]
        if word == "template" and index + 1 < len(declaration) and declaration[index + 1] == "<":
            index = after(declaration, index + 1, "<", ">")
        elif word == "requires":
            index += 1
            while index < len(declaration) and declaration[index] == "(":
                index = after(declaration, index, "(", ")")
            if index < len(declaration) and declaration[index] in ("&&", "||"):
                declaration = declaration[:index] + ["requires"] + declaration[index + 1:]
        elif word == "[" and declaration[index:index + 2] == ["[", "["]:
            index = after(declaration, index, "[", "]")
        else:
            out.append(word)
            index += 1
    return out


def outside(words):
    """These words without what stands in parentheses."""
    out = []
    index = 0
    while index < len(words):
        if words[index] == "(":
            index = after(words, index, "(", ")")
        else:
            out.append(words[index])
            index += 1
    return out


def function_of(declaration):
    """(name, words of the result) of a declaration of a function, or None."""
    words = without_template(declaration)
    if "operator" in words:
        at = words.index("operator")
        to = words.index("(", at + 1) if "(" in words[at + 1:] else len(words)
        result = words[:at] + words[at + 1:to]  # a conversion says its result behind
        return "operator " + " ".join(words[at + 1:to]), result
    if "(" not in words:
        return None
    at = words.index("(")
    if at == 0 or not re.match(r"\w+$", words[at - 1]) or "=" in words[:at]:
        return None
    result = words[:at - 1]
    if "->" in words[after(words, at, "(", ")"):]:
        result = words[words.index("->", at):]
    return words[at - 1], result


def behind_initializers(tokens, index):
    """The index of the body of a constructor whose list of initializers begins here; else the same index."""
    at = index
    while at < len(tokens) and tokens[at] == "noexcept":
        at = after(tokens, at + 1, "(", ")") if tokens[at + 1] == "(" else at + 1
    if at >= len(tokens) or tokens[at] != ":":
        return index
    while at < len(tokens) and tokens[at] in (":", ","):
        while tokens[at] not in ("(", "{"):
            at = after(tokens, at, "<", ">") if tokens[at] == "<" else at + 1
        at = after(tokens, at, tokens[at], ")" if tokens[at] == "(" else "}")
        while tokens[at] == ".":
            at += 1
    return at


def member_of(declaration):
    """(name, words of the type) of a public member that refers to bytes elsewhere, or None."""
    words = outside(without_template(declaration))
    words = words[:words.index("=")] if "=" in words else words
    if len(words) < 2 or not ("span" in words or "*" in words) or "operator" in words:
        return None
    return words[-1], words[:-1]


def functions_of(text):
    """(class or empty, name, type) of each public function and member that a header declares."""
    tokens = tokens_of(text)
    scopes = [("namespace", "", True)]
    begin = 0
    index = 0
    while index < len(tokens):
        word = tokens[index]
        kind, name, is_public = scopes[-1]
        if word in ("public", "private", "protected") and tokens[index + 1] == ":" and index == begin:
            scopes[-1] = (kind, name, word == "public")
            index += 2
            begin = index
        elif word == "(":
            index = behind_initializers(tokens, after(tokens, index, "(", ")"))
        elif word == ";":
            yield from declared(tokens[begin:index], name, is_public)
            index += 1
            begin = index
        elif word == "}":
            scopes.pop()
            index += 1
            begin = index
        elif word == "{":
            declaration = tokens[begin:index]
            words = without_template(declaration)
            if "namespace" in words or words[:1] == ["extern"]:
                hidden = "detail" in words or not is_public
                scopes.append(("namespace", "", not hidden))
                index += 1
                begin = index
            elif words and words[0] in ("class", "struct", "union") and "(" not in words:
                found = next((each for each in words[1:] if re.match(r"[a-z]\w*$", each)), "")
                inner = f"{name}::{found}" if name else found
                scopes.append(("class", inner, is_public and words[0] != "class"))
                if words[0] == "class":
                    scopes[-1] = ("class", inner, False)
                index += 1
                begin = index
            else:
                if "concept" not in words and words[:1] != ["enum"]:
                    yield from declared(declaration, name, is_public)
                index = after(tokens, index, "{", "}")
                if index < len(tokens) and tokens[index] == ";":
                    index += 1
                begin = index if "=" not in outside(words) or tokens[index - 1] == ";" else begin
        else:
            index += 1


def declared(declaration, owner, is_public):
    if not is_public or not declaration or declaration[-2:] == ["=", "delete"]:
        return
    if declaration[0] in ("using", "typedef", "static_assert", "friend", "return", "if", "enum", "concept"):
        return
    found = function_of(declaration)
    if found is None and owner:
        found = member_of(declaration)
    if found and found[0] != owner.rsplit("::", maxsplit=1)[-1]:  # a constructor gives nothing
        yield owner, found[0], found[1]


def sites_of(root):
    """What may hold bytes in these headers, each with its number of overloads: "header class::name (2)"."""
    include = root / "include/chunkmem"
    headers = [path for folder in FOLDERS for path in sorted((include / folder).glob("*.hpp"))]
    headers += [include / part for part in PARTS if (include / part).exists()]
    found = collections.Counter()
    for header in headers:
        for owner, name, result in functions_of(header.read_text(encoding="utf-8")):
            kept = [each for each in result if each not in SPECIFIERS]
            if kept and GIVES.search(" ".join(kept)):
                found[f"{header.relative_to(include)} {owner + '::' if owner else ''}{name}"] += 1
    return [f"{site} ({count})" for site, count in found.items()]


def known_sites(root):
    """The lines of the table: {site: (file, case) or a reason}."""
    known = {}
    for line in (root / TABLE).read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        site, _, answer = line.partition(" | ")
        path, _, case = answer.partition(": ")
        known[site.strip()] = (path, case) if path.endswith((".cpp", ".hpp")) else answer.strip()
    return known


def violations_of(root):
    sites = sites_of(root)
    if not sites:
        return ["there is no function that gives bytes: the headers are not read"]
    known = known_sites(root)
    wrong = [f"{site} gives bytes and is not in {TABLE}: name the case that fails the other ranks under it"
             for site in sites if site not in known]
    wrong += [f"{TABLE}: {site} is no function that gives bytes" for site in known if site not in sites]
    for site, answer in known.items():
        if isinstance(answer, str):
            wrong += [] if len(answer) > 10 else [f"{TABLE}: {site} has neither a case nor a reason"]
        elif not (root / "tests" / answer[0]).exists() or f'"{answer[1]}"' not in joined(root / "tests" / answer[0]):
            wrong.append(f"{TABLE}: {site}: there is no '{answer[1]}' in tests/{answer[0]}")
    return wrong


def joined(path):
    """The text of a test file, with sentences that go over lines put together."""
    return re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    tree.report("bytes of ranks", violations_of(tree.root_of_arguments()), "each function that gives bytes is tried")
