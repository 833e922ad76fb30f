#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each page of the site is in a table of contents that begins at docs/site/index.md, and each entry of them is a page.

    python3 tests/pages/toctrees.py

A page that says `orphan: true`, as the one for wrong addresses, is in none. The pages are those that docs/site/stage.py puts where Sphinx reads them. Each page in docs/ and each README of examples/ is one.
"""
import fnmatch
import importlib.util
import posixpath
import re

import page

TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.M | re.S)
ENTRY = re.compile(r"^(?:.*<([^>]+)>|([^:<>\s]\S*))$")
GLOB = re.compile(r"docname == \"([^\"]+)\":\s*source\[0\] \+= \"(.*?)\"\n", re.S)  # conf.py adds this table to that page


def site_of(root):
    """{name in the site without .md: path} of all pages that Sphinx reads."""
    spec = importlib.util.spec_from_file_location("stage", root / "docs/site/stage.py")
    stage = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stage)
    own = {path.relative_to(root / "docs/site"): path for path in (root / "docs/site").rglob("*.md")}
    staged = {path.relative_to(root): path for pattern in stage.PAGES for path in root.glob(pattern) if path.suffix == ".md"}
    return {str(name.with_suffix("")): path for name, path in {**staged, **own}.items()}


def entries_of(name, text, site):
    """The pages that the tables of a page name, as names in the site; a pattern names those that it fits."""
    folder = posixpath.dirname(name)
    for table in TOCTREE.findall(text):
        for line in (line.strip() for line in table.splitlines()):
            found = ENTRY.match(line)
            if not found or not line:
                continue
            entry = posixpath.normpath(posixpath.join(folder, found[1] or found[2]))
            if ":glob:" in table:
                yield from (it for it in site if posixpath.dirname(it) == folder and fnmatch.fnmatch(it, entry))
            else:
                yield entry.removesuffix(".md")


def main():
    root = page.arguments(__doc__).root
    site = site_of(root)
    texts = {name: page.read(path) for name, path in site.items()}
    for name, table in GLOB.findall(page.read(root / "docs/site/conf.py")):
        texts[name] = texts.get(name, "") + table.replace("\\n", "\n")
    wrong = [f"{path.relative_to(root)} is no page of the site: PAGES of docs/site/stage.py names it not"
             for path in page.pages(root, "docs/*.md", "docs/*/*.md", "examples/*/README.md")
             if path not in site.values()]
    reached, next_ones = set(), ["index"]
    while next_ones:
        name = next_ones.pop()
        if name in reached:
            continue
        reached.add(name)
        for entry in entries_of(name, texts[name], site):
            if entry in site:
                next_ones.append(entry)
            else:
                wrong.append(f"{site[name].relative_to(root)}: its table of contents names {entry}, which is no page")
    wrong += [f"{path.relative_to(root)} is in no table of contents of the site" for name, path in site.items()
              if name not in reached and not texts[name].startswith("---\norphan: true\n")]
    if wrong:
        page.fail("toctrees", "a reader of the site does not find these:", *sorted(set(wrong)))
    print(f"toctrees: {len(reached)} pages are reached from docs/site/index.md")


main()
