#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each way to get chunkmem has all that it needs, looked at without Conan, vcpkg and CMake.

    python3 tests/layout/check_packages.py [<top of the tree>]

What cmake/install.cmake installs, and what CMakeLists.txt reads for it, is in the tree and in `exports_sources` of conanfile.py.
docs/installing.md names each installed folder, each component, and each way with its test: the folder of tests/consumers.
The port of vcpkg and the options of Conan name components that are there, and the version is one.
"""
import ast
import fnmatch
import json
import re

import tree

INSTALL, LISTS, CONAN, DOCS = "cmake/install.cmake", "CMakeLists.txt", "conanfile.py", "docs/installing.md"
PORT, USAGE = "cmake/vcpkg/ports/chunkmem/vcpkg.json", "cmake/vcpkg/ports/chunkmem/usage"
CONSUMERS = "tests/consumers"
KEYWORDS = {"DESTINATION", "FILES_MATCHING", "PATTERN", "NAMESPACE", "EXPORT", "INSTALL_DESTINATION", "PATH_VARS", "RENAME", "EXCLUDE",
            "PERMISSIONS", "COMPONENT", "OPTIONAL"}
FOLDERS = {"CMAKE_INSTALL_DATADIR": "share", "CMAKE_INSTALL_INCLUDEDIR": "include", "PROJECT_SOURCE_DIR": ".", "CMAKE_CURRENT_LIST_DIR": "."}


def commands_of(text):
    """(name, arguments) of the commands of a CMake file, with its variables and the folders of an installation put in."""
    text = re.sub(r"^\s*#.*$|\s#[^\n\"]*$", "", re.sub(r"\[\[.*?\]\]", "", text, flags=re.S), flags=re.M)
    known = dict(FOLDERS)

    def put_in(word):
        return re.sub(r"\$\{(\w+)\}", lambda it: known.get(it[1], it[0]), word.strip('"'))

    for name, inside in re.findall(r"^\s*(\w+) *\(((?:\"[^\"]*\"|[^()\"]|\([^()]*\))*)\)", text, re.M):
        words = [put_in(word) for word in re.findall(r'"[^"]*"|\S+', inside)]
        if name == "set" and len(words) > 1:
            known[words[0]] = words[1]
        yield name, words


def installed(root):
    """(kind, path in the tree, place in the installation, pattern) of everything that is installed from the tree."""
    for name, words in commands_of((root / INSTALL).read_text(encoding="utf-8")):
        if name != "install" or words[0] not in ("FILES", "PROGRAMS", "DIRECTORY"):
            continue
        end = next((at for at, word in enumerate(words) if at and word in KEYWORDS), len(words))
        place = words[words.index("DESTINATION") + 1]
        pattern = words[words.index("PATTERN") + 1] if "FILES_MATCHING" in words else "*"
        for path in words[1:end]:
            if not path.startswith("${PROJECT_BINARY_DIR}"):
                yield words[0], path.removeprefix("./"), place, pattern


def read_by_the_build(root):
    """Files that the build of a package reads."""
    for path in (LISTS, INSTALL):
        for name, words in commands_of((root / path).read_text(encoding="utf-8")):
            if name in ("include", "configure_package_config_file", "add_subdirectory") and "/" in words[0] and "$" not in words[0]:
                yield path, words[0].removeprefix("./")


def exported(root):
    """What a path has to fit for Conan to take it along."""
    for node in ast.walk(ast.parse((root / CONAN).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "exports_sources":
            value = ast.literal_eval(node.value)
            return [value] if isinstance(value, str) else list(value)
    return []


def source_violations(root, files):
    patterns = exported(root)

    def goes_along(path):
        return (any(fnmatch.fnmatch(path, it) for it in patterns if not it.startswith("!"))
                and not any(fnmatch.fnmatch(path, it[1:]) for it in patterns if it.startswith("!")))

    count = 0
    for kind, path, _, pattern in installed(root):
        count += 1
        found = [it for it in files if it == path] if kind != "DIRECTORY" else [
            it for it in files if it.startswith(path + "/") and fnmatch.fnmatch(it.rpartition("/")[2], pattern)]
        if not found:
            yield f"{INSTALL} installs {path}, which is not there"
        yield from (f"{INSTALL} installs {it}, which exports_sources of {CONAN} lacks" for it in found if not goes_along(it))
    for by, path in read_by_the_build(root):
        if path not in files:
            yield f"{by} reads {path}, which is not there"
        elif not goes_along(path):
            yield f"{by} reads {path}, which exports_sources of {CONAN} lacks"
    yield from (f"exports_sources of {CONAN} has {it}, and no file fits" for it in patterns
                if not any(fnmatch.fnmatch(path, it.lstrip("!")) for path in files))
    if not count:
        yield f"{INSTALL} installs nothing from the tree"


def section(text, title):
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1] if found else ""


def place_violations(root, page):
    """The section "Installed files" names each folder that an installation has, and no other."""
    told = re.findall(r"`((?:include|share)/[^`]*)`", section(page, "Installed files"))
    places = {f"{place}/{path.rpartition('/')[2]}" + ("/" if kind == "DIRECTORY" else "")
              for kind, path, place, _ in installed(root) if path != "LICENSE"}
    places |= {f"{words[words.index('DESTINATION') + 1]}/" for name, words in commands_of((root / INSTALL).read_text(encoding="utf-8"))
               if name == "install" and "DESTINATION" in words}
    places -= {it for it in places if it.startswith("share/licenses/")}
    exact = {it for it in places if not any(other != it and other.startswith(it) for other in places)}
    yield from (f"{DOCS} does not name the installed {it}" for it in sorted(exact) if not any(it.startswith(each) for each in told))
    yield from (f"{DOCS} names {it}, which is not installed" for it in told if not any(each.startswith(it) for each in places))


def way_violations(root, page):
    """Each way of the page has a test, which is a folder of tests/consumers, and each folder is the test of a way."""
    ways = re.search(r"^set\(ways ([^)]*)\)", (root / CONSUMERS / "register.cmake").read_text(encoding="utf-8"), re.M)[1].split()
    folders = {path.parent.name for path in (root / CONSUMERS).glob("*/check.cmake")}
    rows = re.findall(r"^\| *([^|`]+?) *\|.*\| *`(?:consumers[.])?(\w+)` *\|$", page.split("\n## ")[0], re.M)
    tested = {test for _, test in rows}
    yield from (f"{DOCS}: {way} names the test {test}, which is no folder of {CONSUMERS}" for way, test in rows if test not in folders)
    yield from (f"{CONSUMERS}/{it} is the test of no way in the table of {DOCS}" for it in sorted(folders - tested))
    yield from (f"{CONSUMERS}/register.cmake does not run {it}" for it in sorted(folders - set(ways)))
    count = len(re.findall(r"^\| (?!way )[^|-]", page.split("\n## ")[0], re.M))
    if count != len(rows):
        yield f"{DOCS}: {count - len(rows)} ways name no test in the last column"


def component_violations(root, page):
    there = set(re.findall(r"^function\(chunkmem_find_(\w+) ", (root / "cmake/components.cmake").read_text(encoding="utf-8"), re.M))
    told = set(re.findall(r"^\| `(\w+)` \|", section(page, "Components"), re.M))
    yield from (f"{DOCS} does not tell of the component {it}" for it in sorted(there - told))
    yield from (f"{DOCS} tells of the component {it}, which is not there" for it in sorted(told - there))
    port = json.loads((root / PORT).read_text(encoding="utf-8"))
    usage = set(re.search(r"COMPONENTS ([\w ]+),", (root / USAGE).read_text(encoding="utf-8"))[1].split())
    options = set(re.findall(r'"with_(\w+)"', (root / CONAN).read_text(encoding="utf-8")))
    for where, names in ((PORT, set(port.get("features", {}))), (USAGE, usage), (CONAN, options)):
        yield from (f"{where} names the component {it}, which is not there" for it in sorted(names - there))
    yield from (f"{USAGE} does not name the feature {it}" for it in sorted(set(port.get("features", {})) - usage))
    number = int(re.search(r"^#define CHUNKMEM_VERSION (\d+)$",
                           (root / "include/chunkmem/core/version.hpp").read_text(encoding="utf-8"), re.M)[1])
    version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    if port["version"] != version:
        yield f"{PORT} has version {port['version']}, and the headers have {version}"
    yield from (f"{DOCS} names version {it}, and the headers have {version}"
                for it in sorted(set(re.findall(r"chunkmem/(\d+[.]\d+[.]\d+)", page))) if it != version)


def violations_of(root):
    files = set(tree.files_of(root))
    page = (root / DOCS).read_text(encoding="utf-8")
    return [*source_violations(root, files), *place_violations(root, page), *way_violations(root, page), *component_violations(root, page)]


if __name__ == "__main__":
    tree.report("packages", violations_of(tree.root_of_arguments()), "each way to get chunkmem has what it needs")
