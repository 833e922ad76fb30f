#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each name on the pages of the API (docs/site/api) is a public name of the headers, and no section of them is empty. So is each name
`a::b` in backticks on the other pages.

    python3 tests/pages/api_names.py

The headers are read as text (public_names.py): what Doxygen and Sphinx find is found here without them. A header's name in angle
brackets, which Doxygen takes for HTML, stands in backticks in each `///` comment.
"""
import importlib.util
import re

import page
import public_names

PAGES = "docs/site/api/*.md"
BLOCK = re.compile(r"^```\{(\w+)\} *([^\n]*)\n(.*?)^```$", re.M | re.S)
HTML = re.compile(r"(?<![\w\"./-])<[a-z_]+>(?!\")")
NAME = re.compile(r"`((?:cm::|chunkmem::)?[a-z]\w+(?:::[a-z]\w*)+)")
OTHERS = ("std", "torch", "c10", "thrust", "cuda", "conformance", "support")  # the last two are folders of tests
CLASSES = ("class", "struct", "concept")
KIND_OF = {"doxygenenum": ("enum",), "doxygenclass": ("class",), "doxygenstruct": ("struct",), "doxygenconcept": ("concept",),
           "doxygentypedef": ("alias",)}
NO_API = ("toctree", "literalinclude")


def stage_of(root):
    """What the site does with names: it shows one class under the name of its alias."""
    spec = importlib.util.spec_from_file_location("stage", root / "docs/site/stage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Headers:
    """The public names, as the site shows them."""

    def __init__(self, root):
        self.public = public_names.read(root)
        self.told = {shown: real for real, shown in stage_of(root).PUBLIC_NAMES.items()}

    def kind_of(self, name):
        return self.public.kinds.get(self.told.get(name, name))

    def calls_of(self, owner):
        return self.public.calls_of(self.told.get(owner, owner))


def problems_of_block(headers, kind, name, content, told):
    words = " ".join(content.split()).split()
    if kind in NO_API:
        return
    if kind == "calls":
        if not words:
            yield f"the calls of {name}: there is no name"
        calls = headers.calls_of(name)
        yield from (f"{name} has no public call {word}" for word in words if word not in calls)
    elif kind == "other_calls":
        plain = name.split("::")[-1]
        if not {it for it in headers.calls_of(name) if it not in told.get(name, ()) and it not in ("operator", plain)}:
            yield f"the other calls of {name}: there are none"
    elif kind == "classes":
        if not words:
            yield "a list of classes has no name"
        yield from (f"there is no class {word.lstrip('!')} in the headers" for word in words
                    if headers.kind_of(word.lstrip("!")) not in CLASSES)
    elif kind in KIND_OF:
        if headers.kind_of(name) not in KIND_OF[kind]:
            yield f"there is no {KIND_OF[kind][0]} {name} in the headers"
    else:
        yield f"the block {{{kind}}} is unknown to this checker"


def empty_sections(text):
    """Headings with nothing before the next one of their level; a heading of a lower level is something."""
    parts = re.split(r"^(#+) +(.*)$", text, flags=re.M)
    for at in range(1, len(parts), 3):
        level, title, content = parts[at:at + 3]
        if not content.strip() and (at + 3 >= len(parts) or len(parts[at + 3]) <= len(level)):
            yield f"the section '{title}' is empty"


def names_of(public):
    return {*public.kinds, *public.values,
            *(f"{owner}::{call}" for owner in {**public.calls, **public.aliases} for call in public.calls_of(owner))}


def names_in_text(root, public):
    """Names of ours in backticks, which no public name ends with. Examples have names too."""
    names = names_of(public) | names_of(public_names.read(root, "examples"))
    ends = {whole.partition("::")[2] for whole in names}
    ends |= {end[at + 2:] for end in list(ends) for at in (it.start() for it in re.finditer("::", end))}
    for path in page.pages(root, "README.md", "SECURITY.md", *page.README_AND_DOCS[1:]):
        for name in NAME.findall(re.sub(r"^```.*?^```", "", page.read(path), flags=re.M | re.S)):
            own = re.sub(r"^(?:cm|chunkmem)::", "", name)
            if "::" in own and own.split("::")[0] not in OTHERS and own not in ends:
                yield f"{path.relative_to(root)}: {name} is no public name of the headers"


def html_in_comments(root):
    for path in sorted((root / "include").rglob("*.hpp")):
        for number, line in enumerate(page.read(path).splitlines(), 1):
            text = line.partition("///")[2]
            if not text.startswith("     ") and (found := HTML.search(re.sub(r"`[^`]*`", "", text))):
                yield f"{path.relative_to(root)}:{number}: {found[0]} is HTML to Doxygen: put it in backticks"


def main():
    root = page.arguments(__doc__).root
    headers = Headers(root)
    told, blocks, wrong = {}, [], [*html_in_comments(root), *names_in_text(root, headers.public)]
    for path in page.pages(root, PAGES):
        text, short = page.read(path), path.relative_to(root)
        for kind, name, content in BLOCK.findall(text):
            blocks.append((short, kind, name.strip(), content))
            if kind == "calls":
                told.setdefault(name.strip(), set()).update(content.split())
        wrong += [f"{short}: {problem}" for problem in empty_sections(text)]
    for short, kind, name, content in blocks:
        wrong += [f"{short}: {problem}" for problem in problems_of_block(headers, kind, name, content, told)]
    if not blocks:
        page.fail("api", "no page names anything")
    if wrong:
        page.fail("api", "these pages tell what the headers have not:", *dict.fromkeys(wrong))
    print(f"api: each name in {len(blocks)} lists is a public name of the headers")


main()
