#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares the site: puts the pages where Sphinx reads them, and turns what Doxygen found into what users see.

    python3 docs/site/stage.py <top of the tree> <folder with Doxygen's xml> <folder for Sphinx>

Users see one class `chunkmem::manager`. In the headers it is an alias of a class with bases; Doxygen has already listed
the members of the bases in that class. Here the class gets its public name, and no class shows bases that are no
standard exceptions.
"""

import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree as xml

PUBLIC_NAMES = {"chunkmem::basic_manager": "chunkmem::manager"}
ASSEMBLED = ["chunkmem::manager", "chunkmem::sharded_model"]  # show members of their bases as their own
PLACE_OF_CALL = re.compile(r"(, *)?(?:typename )?[\w:]*place_type from=(?:typename )?[\w:]*place_type\{\}")
DESIGNATOR = re.compile(r"([{,]\s*)\.(?=[a-z_]\w*\s*[={])")
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/policies/*.md", "docs/pictures/*.svg",
         "examples/*.cpp", "examples/*/README.md", "LICENSE"]


def refuses_with_a_sentence(member):
    """A function of a namespace that is there for its static_assert: its comment says so."""
    return "".join(member.find("briefdescription").itertext()).strip().endswith(", with a sentence.")


def is_refusal(member):
    """An overload of a class that takes parameters without names is there for its static_assert."""
    return member.get("kind") == "function" and any(each.find("declname") is None for each in member.findall("param"))


def add_hidden(definition, bases):
    """Members of bases that an overload in a derived class hides, and that a using-declaration brings back."""
    for section in definition.findall("sectiondef"):
        for member in section.findall("memberdef"):
            if is_refusal(member):
                section.remove(member)
    known = {member.findtext("name") for member in definition.iter("memberdef")}
    for base in bases:
        for section in base.findall("sectiondef"):
            new = [each for each in section.findall("memberdef") if each.get("prot") == "public" and each.findtext("name") not in known
                   and each.get("kind") == "function" and not is_refusal(each)]
            if new:
                fresh = xml.SubElement(definition, "sectiondef", kind="public-func")
                fresh.extend(new)


def bases_of(definition, folder, compounds):
    text = " ".join("".join(each.itertext()) for each in definition.findall("basecompoundref"))
    for word in re.findall(r"[\w:]+", text):
        base = compounds.get(word) or compounds.get(f"chunkmem::{word}")
        if base:
            yield xml.parse(folder / (base + ".xml")).getroot().find("compounddef")


def assemble(definition, name):
    """The members of this class and of its bases, each as one of this class."""
    definition.find("compoundname").text = name
    seen = set()
    for section in list(definition.findall("sectiondef")):
        for member in list(section.findall("memberdef")):
            key = (member.findtext("name"), member.findtext("argsstring"), member.get("kind"))
            if member.get("prot") != "public" or key in seen:
                section.remove(member)
                continue
            seen.add(key)
            kind = "".join(member.find("type").itertext()) if member.find("type") is not None else ""
            plain = name.split("::")[-1]
            if member.findtext("name") == plain.replace("manager", "basic_manager") or member.findtext("name") == "model_plan":
                member.find("name").text = plain
            if member.find("definition") is not None:
                member.find("definition").text = f"{kind} {name}::{member.findtext('name')}".strip()
            if member.find("qualifiedname") is not None:
                member.find("qualifiedname").text = f"{name}::{member.findtext('name')}"
        if not section.findall("memberdef"):
            definition.remove(section)


def tell_exceptions(definition):
    """Comments say `@throws a, b   when`, which Sphinx has no field for: a list under the word Throws."""
    for paragraph in list(definition.iter("para")):
        for listed in paragraph.findall("parameterlist[@kind='exception']"):
            at = list(paragraph).index(listed)
            section = xml.Element("simplesect", kind="par")
            xml.SubElement(section, "title").text = "Throws:"
            items = xml.SubElement(xml.SubElement(section, "para"), "itemizedlist")
            for item in listed.findall("parameteritem"):
                names = [name.strip(" ,;") for each in item.iter("parametername") for name in "".join(each.itertext()).split(",")]
                text = item.find("parameterdescription/para")
                line = xml.SubElement(xml.SubElement(items, "listitem"), "para")
                for number, name in enumerate(name for name in names if name):
                    code = xml.SubElement(line, "computeroutput")
                    code.text, code.tail = name, " "
                if text is not None:
                    last = line[-1] if len(line) else None
                    if last is not None:
                        last.tail = ": " + (text.text or "")
                    else:
                        line.text = text.text
                    line.extend(list(text))
            section.tail = listed.tail
            paragraph.remove(listed)
            paragraph.insert(at, section)


def plain_initializers(definition):
    """Sphinx has no grammar for `{.count = 1}`. As `{count = 1}` it reads the same names and values."""
    for initializer in [each for tag in ("initializer", "defval") for each in definition.iter(tag)]:
        for part in initializer.iter():
            part.text = part.text and DESIGNATOR.sub(r"\1", part.text)
            if part is not initializer:
                part.tail = part.tail and DESIGNATOR.sub(r"\1", part.tail)


def hide_places_of_calls(definition):
    """A last parameter that the compiler fills in, with the place of the call: no user writes it."""
    for member in definition.iter("memberdef"):
        arguments = member.find("argsstring")
        if arguments is None or not PLACE_OF_CALL.search(arguments.text or ""):
            continue
        arguments.text = PLACE_OF_CALL.sub("", arguments.text)
        for parameter in member.findall("param"):
            if parameter.findtext("declname") == "from" and parameter.find("defval") is not None:
                member.remove(parameter)


def leave_out_what_tells_nothing(definition):
    """Copies that are deleted, destructors without a comment, the kind of a policy; and `inline`, which all of them are."""
    for section in definition.findall("sectiondef"):
        for member in section.findall("memberdef"):
            name, arguments = member.findtext("name"), member.findtext("argsstring") or ""
            member.set("inline", "no")
            told = any(part.strip() for each in ("briefdescription", "detaileddescription") for part in member.find(each).itertext())
            if arguments.endswith("=delete") or (not told and (name.startswith("~") or name == "policy_kind")):
                section.remove(member)


def rewrite(folder):
    index_file = folder / "index.xml"
    index = xml.parse(index_file)
    root = index.getroot()
    compounds = {each.findtext("name"): each.get("refid") for each in root.findall("compound") if each.get("kind") in ("class", "struct")}
    for compound in list(root.findall("compound")):
        name = compound.findtext("name")
        if compound.get("kind") == "namespace":
            file = folder / (compound.get("refid") + ".xml")
            tree = xml.parse(file)
            tell_exceptions(tree.getroot())
            plain_initializers(tree.getroot())
            hide_places_of_calls(tree.getroot())
            for section in tree.getroot().iter("sectiondef"):
                for member in section.findall("memberdef"):
                    member.set("inline", "no")
                    if refuses_with_a_sentence(member):
                        section.remove(member)
                        for listed in compound.findall(f"member[@refid='{member.get('id')}']"):
                            compound.remove(listed)
            tree.write(file, encoding="utf-8", xml_declaration=True)
        if compound.get("kind") not in ("class", "struct"):
            for member in list(compound.findall("member")):  # the alias has the name of the class now
                if member.get("kind") == "typedef" and f"{name}::{member.findtext('name')}" in PUBLIC_NAMES.values():
                    compound.remove(member)
            continue
        file = folder / (compound.get("refid") + ".xml")
        tree = xml.parse(file)
        definition = tree.getroot().find("compounddef")
        if PUBLIC_NAMES.get(name, name) in ASSEMBLED:
            add_hidden(definition, list(bases_of(definition, folder, compounds)))
        for tag in ("basecompoundref", "derivedcompoundref"):
            for other in definition.findall(tag):
                if not "".join(other.itertext()).startswith("std::"):
                    definition.remove(other)
        tell_exceptions(definition)
        plain_initializers(definition)
        hide_places_of_calls(definition)
        leave_out_what_tells_nothing(definition)
        name = PUBLIC_NAMES.get(name, name)
        compound.find("name").text = name
        if name in ASSEMBLED:
            assemble(definition, name)
            for member in list(compound.findall("member")):
                compound.remove(member)
            for member in definition.iter("memberdef"):
                entry = xml.SubElement(compound, "member", refid=member.get("id"), kind=member.get("kind"))
                xml.SubElement(entry, "name").text = member.findtext("name")
        if name != "chunkmem::error":
            for section in definition.findall("sectiondef"):
                for member in section.findall("memberdef"):
                    if member.get("id").startswith(compounds["chunkmem::error"] + "_1"):
                        section.remove(member)
        tree.write(file, encoding="utf-8", xml_declaration=True)
    index.write(index_file, encoding="utf-8", xml_declaration=True)


def stage(top, to):
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(top / "docs" / "site", to, ignore=shutil.ignore_patterns("stage.py", "check.py", "__pycache__"))
    for pattern in PAGES:
        for page in top.glob(pattern):
            target = to / page.relative_to(top)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, target)


def main(arguments):
    if len(arguments) != 3:
        sys.exit("write: stage.py <top of the tree> <folder with Doxygen's xml> <folder for Sphinx>")
    top, xml_folder, to = (pathlib.Path(each).resolve() for each in arguments)
    rewrite(xml_folder)
    stage(top, to)


if __name__ == "__main__":
    main(sys.argv[1:])
