#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone, included twice, without a warning, whatever capital letters are macros of the user.

    python3 tests/headers/check.py [--each] [component=include folder ...] compiler [compiler ...]

Users have macros like N, so headers are searched for single capital letters as words. Headers of cmake/opt_in_headers.txt
are tried where their component is given, and named where it is not.

Clang compiles all headers in one unit, each as a submodule of its own (clang.llvm.org/docs/Modules.html): a submodule sees
the declarations and macros of what it includes, directly or through others, and no others that the unit has. So each header
is parsed once, and sees what it would see alone. The headers of the standard library are no modules: a submodule that
includes one has it anew.

Another compiler needs more units, and with `--each` every compiler has a unit for each header. Without it: where all that
stands before a header in a unit is among what it includes itself, its code sees the declarations that it would see alone,
because headers include at their top. They may come in another order: only `--each` shows that the order does not matter. So
one unit holds a chain of headers, each one included by the next, directly or through others; the fewest chains are a
matching (Dilworth).
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"]
SUBMODULES = ["-fmodules", "-fno-implicit-modules", "-fno-implicit-module-maps", "-fmodule-name=chunkmem",
              "-Xclang", "-fmodules-local-submodule-visibility", "-ferror-limit=0"]


def own_includes(text):
    """What a header includes of ours whatever the compiler and its flags: nothing between #if and #endif."""
    found = []
    depth = 0
    for line in text.splitlines():
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        elif depth == 0 and (include := re.match(r"#include <(chunkmem/[^>]+)>", line)):
            found.append(include[1])
    return found


def includes_late(text):
    """An include of ours stands below code, so what precedes the code is not all that the header includes."""
    seen_code = False
    for line in text.splitlines():
        if line.startswith("#include <chunkmem/") and seen_code:
            return True
        seen_code = seen_code or not (re.match(r"\s*($|//|#)", line))
    return False


def closures(includes):
    """By header: all that it includes, directly or through others."""
    known = {}

    def closure(header):
        if header not in known:
            known[header] = set()
            for included in includes[header]:
                known[header] |= {included} | closure(included)
        return known[header]

    for header in includes:
        closure(header)
    return known


def fewest_chains(headers, included):
    """The headers in the fewest chains in which each one is included by the next: a matching by augmenting paths."""
    after = {header: [other for other in headers if header != other and header in included[other]]
             for header in headers}
    before = {}

    def has_path(header, seen):
        for other in after[header]:
            if other not in seen:
                seen.add(other)
                if other not in before or has_path(before[other], seen):
                    before[other] = header
                    return True
        return False

    for header in headers:
        has_path(header, set())
    followed = {header: other for other, header in before.items()}
    chains = []
    for header in headers:
        if header not in before:
            chain = [header]
            while chain[-1] in followed:
                chain.append(followed[chain[-1]])
            chains.append(chain)
    return chains


def words_of_one_letter(text):
    """Lines of a header that use a single capital letter as a name."""
    code = re.sub(r"\"[^\"]*\"|'[^']'", "", re.sub(r"//.*", "", text))
    return [line for line in code.splitlines() if re.search(r"(?<!\w)[A-Z](?!\w)", line)]


def flags_of(component, folders):
    """What the compiler gets for headers of a component, or for those of none."""
    flags = list(WARNINGS)
    if component is not None:
        for _, folder in folders:
            if folder != "/usr/include":  # earlier than the compilers' own folder, it would hide the standard library
                flags += ["-isystem", folder]
    return flags + (["-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP"] if component == "thrust" else [])


def said_by(compiler, flags, unit, headers):
    """What the compiler says of a unit with these headers; nothing where all is well."""
    command = [*compiler.split(), *flags, f"-I{ROOT}/include", "-x", "c++", "-"]
    run = subprocess.run(command, input=unit, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    failed = run.returncode != 0 or run.stdout
    return f"{run.stdout}\n{headers} do not compile with {compiler}" if failed else ""


def compile_chain(compiler, flags, chain):
    """What the compiler says of the headers of a chain, each included twice."""
    unit = "".join(f"#include <{header}>\n" * 2 for header in chain)
    return said_by(compiler, flags, unit, " then ".join(chain))


def compile_submodules(compiler, flags, headers, included):
    """What Clang says of headers that are a submodule each, as are those that they include."""
    headers = sorted({it for header in headers for it in {header} | included[header]})
    unit = "".join(f"#include <{header}>\n" * 2 for header in headers)
    with tempfile.NamedTemporaryFile("w", suffix=".modulemap") as module_map:
        module_map.write("module chunkmem {\n")
        for header in headers:
            module_map.write(f'  module {re.sub("[^a-z0-9_]", "__", header)} {{ header "{ROOT}/include/{header}" export * }}\n')
        module_map.write("}\n")
        module_map.flush()
        return said_by(compiler, [*flags, *SUBMODULES, f"-fmodule-map-file={module_map.name}"], unit, "headers")


def is_clang(compiler):
    asked = subprocess.run([*compiler.split(), "--version"], text=True, stdout=subprocess.PIPE)
    return "clang version" in asked.stdout


def main(arguments):
    folders = [tuple(it.split("=", 1)) for it in arguments if "=" in it]
    compilers = [it for it in arguments if "=" not in it and it != "--each"]
    if not compilers:
        sys.exit("usage: check.py [--each] [component=include folder ...] compiler [compiler ...]")
    texts = {str(path.relative_to(ROOT / "include")): path.read_text()
             for path in sorted((ROOT / "include").rglob("*.hpp"))}
    component_of = dict(line.split() for line in (ROOT / "cmake/opt_in_headers.txt").read_text().splitlines()
                        if line and not line.startswith("#"))
    component_of = {f"chunkmem/{header}": component for header, component in component_of.items()}
    included = closures({header: own_includes(text) for header, text in texts.items()})
    errors = [f"{header} includes another header of ours below code" for header in texts if includes_late(texts[header])]
    errors += [f"{header} includes itself, through others" for header in texts if header in included[header]]
    errors += [f"{header} uses a single capital letter as a name: {line.strip()}"
               for header in texts for line in words_of_one_letter(texts[header])]
    given = {component for component, _ in folders}
    work = []
    tried = 0
    for component in [None, *sorted(set(component_of.values()))]:
        headers = [header for header in texts if component_of.get(header) == component]
        if component is not None and component not in given:
            print(f"SKIPPED: there is no {component}, for {', '.join(headers)}")
            continue
        tried += len(headers)
        flags = flags_of(component, folders)
        for compiler in compilers:
            if "--each" in arguments:
                work += [(compile_chain, compiler, flags, [header]) for header in headers]
            elif is_clang(compiler):
                work.append((compile_submodules, compiler, flags, headers, included))
            else:
                work += [(compile_chain, compiler, flags, chain) for chain in fewest_chains(headers, included)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        errors += [said for said in pool.map(lambda it: it[0](*it[1:]), work) if said]
    print(*errors, sep="\n")
    if tried == 0 or errors:
        sys.exit(f"headers: failed ({len(errors)} errors, {tried} headers)")
    print(f"headers: {tried}, twice, each after nothing but what it includes, with: {', '.join(compilers)} "
          f"({len(work)} units)")


if __name__ == "__main__":
    main(sys.argv[1:])
