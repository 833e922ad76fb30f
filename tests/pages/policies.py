#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's table of policies is what the headers have.

    python3 tests/pages/policies.py [--write]

A policy is a class with `using policy_kind` and a `name` of its own. The default of its kind stands in
`pick_policy<kind, default, ...>`.
"""
import re

import page

KINDS = ("eviction", "transfer", "placement", "layout", "rules", "gradient", "mover", "sink", "checks", "ownership",
         "communicator", "activation", "pipeline")
DECLARED = re.compile(r"^struct ([a-z]+)_kind {};", re.MULTILINE)
PARTS_OF_OTHERS = ("by_retention", "gathering", "timeline_sink", "watched_share")
KIND = re.compile(r"using policy_kind = ([a-z]+)_kind")
NAME = re.compile(r'string_view name = "([a-z_]+)"')
PICK = re.compile(r"pick_policy<([a-z]+)_kind, (?:[a-z_]+::)*([a-z_]+),")
BEGIN, END = "<!-- policies, from the headers -->\n", "<!-- end of policies -->"


def policies_of(include):
    """For each kind its folder and its policies, and the defaults as pairs of a kind and a name."""
    folders, models, defaults = {}, {kind: [] for kind in KINDS}, set()
    declared = set()
    for path in sorted(include.rglob("*.hpp")):
        text = page.read(path)
        header = str(path.relative_to(include))
        defaults.update(PICK.findall(text))
        declared.update(DECLARED.findall(text))
        if header == "core/policy.hpp":
            continue
        for kind, name in named_policies(text):
            if kind in KINDS and name not in PARTS_OF_OTHERS:
                models[kind].append(name)
                folders[kind] = str(path.parent.relative_to(include))
    for kind in sorted(declared - set(KINDS)):
        page.fail("policies", f"the family {kind} is in no row: add it to KINDS of tests/pages/policies.py")
    return folders, models, defaults


def named_policies(text):
    """The kind and the name of each class of a header that has both: the name stands between its kind and the next."""
    kinds = list(KIND.finditer(text))
    for kind, end in zip(kinds, [later.start() for later in kinds[1:]] + [len(text)]):
        name = NAME.search(text, kind.end(), end)
        if name:
            yield kind[1], name[1]


def table_of(root):
    folders, models, defaults = policies_of(root / "include/chunkmem")
    table = "\n| family | headers | policies, the default in bold | a page |\n|---|---|---|---|\n"
    for kind in KINDS:
        if not models[kind]:
            page.fail("policies", f"no {kind} was found in {root}/include/chunkmem")
        if not (root / f"docs/policies/{kind}.md").exists():
            page.fail("policies", f"there is no page docs/policies/{kind}.md")
        cell = ", ".join(f"**`{name}`**" if (kind, name) in defaults else f"`{name}`" for name in sorted(models[kind]))
        table += f"| {kind} | `{folders[kind]}/` | {cell} | [{kind}](docs/policies/{kind}.md) |\n"
    return table


def main():
    given = page.arguments(__doc__, write=page.WRITE)
    readme = given.root / "README.md"
    before, begin, rest = page.read(readme).partition(BEGIN)
    there, end, after = rest.partition(END)
    if not begin or not end:
        page.fail("policies", f"README.md has no {BEGIN.strip()} ... {END}")
    table = table_of(given.root)
    if there != table and given.write:
        readme.write_text(before + begin + table + end + after, encoding="utf-8")
    elif there != table:
        page.fail("policies", "the README's table is not what the headers have (python3 tests/pages/policies.py --write):",
                  table)
    print("policies: the README has what the headers have")


main()
