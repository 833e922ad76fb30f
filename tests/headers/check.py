#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone, included twice, without a warning, while each single capital letter is a macro.

    python3 tests/headers/check.py [--each] [component=include folder ...] compiler [compiler ...]

Users have macros like N, so no header of ours may use them as names. Headers of cmake/opt_in_headers.txt are tried
where their component is given, and named where it is not; what they include uses such names itself, so these headers
are searched for them as words.

Fewer compilations than headers: where all that stands before a header in a unit is among what it includes itself, its
code sees the declarations that it would see alone, because headers include at their top. They may come in another order:
only `--each`, a unit for each header, shows that the order does not matter. So one unit holds a chain of headers, each
one included by the next, directly or through others; the fewest chains are a matching (Dilworth).

What many units begin with is compiled once: a header that stands high in many of them is precompiled, with a chain of
its own before it, and each unit whose headers all include it begins with it. So again nothing precedes a header but what it
includes. A compiler that does not take the precompiled file reads the same text.
"""
import concurrent.futures
import pathlib
import re
import string
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDING = 3  # to precompile a header costs as much as that many chains that are compiled with its text
LOADING = 20000  # to load a precompiled header costs as much as so many characters of text
WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"]


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


def shared_beginning(chains, included, texts):
    """The header that saves most where it is compiled once: by its text and by the chains whose end includes it."""
    ends = [chain[-1] for chain in chains]
    candidates = {header for end in ends for header in included[end]}
    size = {header: sum(len(texts[it]) for it in {header} | included[header]) for header in candidates}
    saved = {}
    for header in sorted(candidates):
        users = sum(header in included[end] for end in ends)
        saved[header] = size[header] * (users - BUILDING) - LOADING * users
    best = max(saved, key=saved.get, default=None)
    return best if best is not None and saved[best] > 0 else None


def units_of(headers, included, texts):
    """The units of headers: (what it begins with, or None; its chain). A beginning is the end of a chain of its own."""
    units = []
    beginnings = {}
    while (best := shared_beginning(fewest_chains(headers, included), included, texts)) is not None:
        users = [header for header in headers if best in included[header]]
        before = [header for header in headers if header in included[best] and header not in users]
        chain = next((it for it in fewest_chains([*before, best], included) if it[-1] == best))
        beginnings[best] = chain
        units += [(best, it) for it in fewest_chains(users, included)]
        headers = [header for header in headers if header not in users and header not in chain]
    return beginnings, units + [(None, chain) for chain in fewest_chains(headers, included)]


def words_of_one_letter(text):
    """Lines of a header that use a single capital letter as a name."""
    code = re.sub(r'"[^"]*"', "", re.sub(r"//.*", "", text))
    return [line for line in code.splitlines() if re.search(r"(?<!\w)[A-Z](?!\w)", line)]


def flags_of(component, folders):
    """What the compiler gets for headers of a component, or for those of none."""
    if component is None:
        return WARNINGS + [f"-D{letter}=1" for letter in string.ascii_uppercase]
    flags = list(WARNINGS)
    for _, folder in folders:
        if folder != "/usr/include":  # earlier than the compilers' own folder, it would hide the standard library
            flags += ["-isystem", folder]
    return flags + (["-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP"] if component == "thrust" else [])


def compile_chain(compiler, flags, chain, begins_with=None, to=None):
    """What the compiler says of the headers of a chain, each included twice; nothing where all is well. They come after
    the file <begins_with>; with <to>, they are precompiled as that file."""
    unit = "".join(f"#include <{header}>\n" * 2 for header in chain)
    command = [*compiler.split(), *flags, f"-I{ROOT}/include"]
    if to is not None:
        to.write_text(unit)
        command = [it for it in command if it != "-fsyntax-only"] + ["-x", "c++-header", str(to), "-o", f"{to}.gch"]
    else:
        unit = (f'#include "{begins_with}"\n' if begins_with is not None else "") + unit
        command += ["-x", "c++", "-"]
    run = subprocess.run(command, input=unit, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    failed = run.returncode != 0 or run.stdout
    return f"{run.stdout}\n{' then '.join(chain)} do not compile with {compiler}" if failed else ""


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
    given = {component for component, _ in folders}
    work = []
    precompiled = []
    wanted = set()
    skipped = 0
    scratch = tempfile.TemporaryDirectory()
    for component in [None, *sorted(set(component_of.values()))]:
        headers = [header for header in texts if component_of.get(header) == component]
        if component is not None and component not in given:
            print(f"SKIPPED: there is no {component}, for {', '.join(headers)}")
            skipped += len(headers)
            continue
        if component is not None:
            errors += [f"{header} uses a single capital letter as a name: {line.strip()}"
                       for header in headers for line in words_of_one_letter(texts[header])]
        wanted.update(headers)
        flags = flags_of(component, folders)
        if "--each" in arguments:
            beginnings, units = {}, [(None, [it]) for it in headers]
        else:
            beginnings, units = units_of(headers, included, texts)
        for number, compiler in enumerate(compilers):
            files = {header: pathlib.Path(scratch.name) / f"{number}_{component}_{header.replace('/', '_')}"
                     for header in beginnings}
            precompiled += [(compiler, flags, chain, None, files[header]) for header, chain in beginnings.items()]
            work += [(compiler, flags, chain, files.get(beginning)) for beginning, chain in units]
    with scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for units in (precompiled, work):
            errors += [said for said in pool.map(lambda it: compile_chain(*it), units) if said]
    work += precompiled
    print(*errors, sep="\n")
    tried = len({header for _, _, chain, *_ in work for header in chain} & wanted)
    if tried == 0 or tried + skipped != len(texts) or errors:
        sys.exit(f"headers: failed ({len(errors)} errors, {tried} headers)")
    print(f"headers: {tried}, twice, each after nothing but what it includes, with: {', '.join(compilers)} "
          f"({len(work)} units)")


if __name__ == "__main__":
    main(sys.argv[1:])
