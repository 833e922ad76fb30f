# SPDX-License-Identifier: Apache-2.0
"""Directives for the pages of the API: calls of a class by name, on the page of the task that they serve.

    ```{calls} chunkmem::manager          every overload of these, each with the whole name; a class or a namespace
    add add_stacked
    ```
    ```{other_calls} chunkmem::manager    the public calls that no page names
    ```
    ```{classes}                          classes with all public members, one a line; a leading ! leaves members out
    chunkmem::report
    ```
"""

import functools
import os
import pathlib
import re
import xml.etree.ElementTree as xml

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx import addnodes


@functools.lru_cache(maxsize=None)
def index_of(folder):
    compounds = {}
    for compound in xml.parse(pathlib.Path(folder) / "index.xml").getroot().findall("compound"):
        if compound.get("kind") in ("class", "struct", "concept", "namespace"):
            compounds[compound.findtext("name")] = (compound.get("kind"), compound.get("refid"))
    return compounds


@functools.lru_cache(maxsize=None)
def members_of(folder, name):
    """{name: [(arguments, place)]} of the public functions of a class or a namespace, in the order of the headers."""
    kind, refid = index_of(folder)[name]
    definition = xml.parse(pathlib.Path(folder) / (refid + ".xml")).getroot().find("compounddef")
    found = {}
    for member in definition.iter("memberdef"):
        if member.get("kind") == "function" and member.get("prot") == "public" and member.find("name") is not None:
            found.setdefault(member.findtext("name"), []).append((member.findtext("argsstring"), place_of(member)))
    return found


def place_of(definition):
    """The header and the line of a definition."""
    location = definition.find("location")
    return location.get("file"), location.get("line")


def is_plain(name):
    return not name.startswith(("~", "operator"))


class ApiDirective(Directive):
    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    @property
    def env(self):
        return self.state.document.settings.env

    @property
    def folder(self):
        return self.env.config.breathe_projects["chunkmem"]

    def show(self, lines):
        node = nodes.Element()
        self.state.nested_parse(StringList(lines, source=self.env.doc2path(self.env.docname)), 0, node)
        return node.children

    def with_source(self, place, shown):
        """The first signature gets a link to its line in the page of its header."""
        header, line = place
        named = self.env.metadata[self.env.docname].get("headers", "").split()
        self.env.metadata[self.env.docname]["headers"] = " ".join(sorted({*named, header}))
        signature = next((each for node in shown for each in node.findall(addnodes.desc_signature)), None)
        if signature is not None:
            page = os.path.relpath(f"source/{header}.html", os.path.dirname(self.env.docname))
            signature += nodes.reference("", "[source]", refuri=f"{page}#line-{line}", classes=["source-link"])
        return shown

    def calls(self, owner, names):
        members = members_of(self.folder, owner)
        missing = [name for name in names if name not in members]
        if missing:
            raise self.error(f"{owner} has no public call {', '.join(missing)}")
        shown = []
        for name in names:
            for arguments, place in members[name]:
                shown += self.with_source(place, self.show([f"```{{doxygenfunction}} {owner}::{name}{arguments}", "```"]))
        return shown


class Calls(ApiDirective):
    def run(self):
        return self.calls(self.arguments[0], " ".join(self.content).split())


class OtherCalls(ApiDirective):
    def run(self):
        owner = self.arguments[0]
        told = set()
        for page in (pathlib.Path(self.env.srcdir) / "api").glob("*.md"):
            for block in re.findall(r"```\{calls\} " + re.escape(owner) + r"\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
                told.update(block.split())
        plain = owner.split("::")[-1]
        return self.calls(owner, [name for name in members_of(self.folder, owner) if name not in told and is_plain(name) and name != plain])


class Classes(ApiDirective):
    def run(self):
        shown = []
        for line in " ".join(self.content).split():
            name = line.lstrip("!")
            if name not in index_of(self.folder):
                raise self.error(f"there is no class {name} in the headers")
            kind = index_of(self.folder)[name][0]
            directive = {"class": "doxygenclass", "struct": "doxygenstruct", "concept": "doxygenconcept"}[kind]
            members = [] if kind == "concept" or line.startswith("!") else [":members:", ":undoc-members:"]
            one = self.with_whole_name(name, self.show([f"```{{{directive}}} {name}", *members, "```"]))
            definition = xml.parse(pathlib.Path(self.folder) / (index_of(self.folder)[name][1] + ".xml")).getroot().find("compounddef")
            shown += self.with_source(place_of(definition), one)
        return shown

    @staticmethod
    def with_whole_name(name, shown):
        """Breathe leaves the namespace of a class out."""
        for description in (each for each in shown if isinstance(each, addnodes.desc)):
            for signature in (each for each in description.children if isinstance(each, addnodes.desc_signature)):
                last = next((each for each in signature.findall(addnodes.desc_name) if each.astext() == name.split("::")[-1]), None)
                if last is not None and not list(signature.findall(addnodes.desc_addname)):
                    prefix = name.rpartition("::")[0] + "::"
                    last.parent.insert(last.parent.index(last), addnodes.desc_addname(prefix, prefix))
        return shown


def source_pages(app):
    """A page for each header that a page of the API links to."""
    include = pathlib.Path(os.environ["CHUNKMEM_TOP"]) / "include"
    for header in sorted({header for each in app.env.metadata.values() for header in each.get("headers", "").split()}):
        text = (include / header).read_text(encoding="utf-8")
        code = app.builder.highlighter.highlight_block(text, "cpp", linenos="inline", lineanchors="line")
        yield f"source/{header}", {"title": header, "body": f"<h1>{header}</h1>{code}", "parents": []}, "page.html"


def setup(app):
    app.connect("html-collect-pages", source_pages)
    app.add_directive("calls", Calls)
    app.add_directive("other_calls", OtherCalls)
    app.add_directive("classes", Classes)
    return {"parallel_read_safe": True}
