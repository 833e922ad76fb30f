#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists what a run of the tests left out: sh tests/run.sh ends with it.

    python3 cmake/not_run.py [--root <top of the tree>] <preset>...

Nothing is listed by hand. The reasons are those that tests gave when they were skipped, as a whole or in part: lines of their output
that begin with `SKIPPED:` or `LEFT OUT:` (build/<preset>/results.xml). The ways to get chunkmem, with their tests, are the table of
docs/installing.md; the presets are those of CMakePresets.json; other commands are those of CONTRIBUTING.md, "Before you push".
"""
import argparse
import json
import pathlib
import re
import subprocess
import xml.etree.ElementTree as xml

REASON = re.compile(r"^(?:-- )?(?:SKIPPED|LEFT OUT):(?: (.+)|\s*\n(?:explicitly with messages?:\n)?\s+(.+))$", re.M)  # Catch2 3: in two lines
CHARACTERS_OF_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")
SHOWN = 4  # tests of one reason


def results_of(file):
    """{test: reasons}, or {test: None} for one that failed, of one run of ctest."""
    text = CHARACTERS_OF_XML.sub("?", file.read_bytes().decode("utf-8", "replace"))
    found = {}
    for case in xml.fromstring(text).iter("testcase"):
        output = case.findtext("system-out") or ""
        reasons = {(one or two).strip() for one, two in REASON.findall(output)}
        if case.get("status") in ("notrun", "disabled"):
            found[case.get("name")] = reasons or {"no reason was given"}
        else:
            found[case.get("name")] = reasons if case.get("status") == "run" else None
    return found


def gaps_of(runs):
    """{reason: tests}, of tests that gave the reason in each run that had them: another preset may do what one cannot."""
    gaps = {}
    for test in sorted({test for run in runs for test in run}):
        said = [run[test] for run in runs if run.get(test) is not None]
        for reason in set.intersection(*said) if said else ():
            gaps.setdefault(reason, []).append(test)
    return gaps


def ways_of(root):
    """{test: way} of the table of docs/installing.md."""
    page = (root / "docs/installing.md").read_text(encoding="utf-8").split("\n## ")[0]
    return {test: way for way, test in re.findall(r"^\| *([^|`]+?) *\|.*\| *`([\w.]+)` *\|$", page, re.M)}


def presets_of(root):
    """Those that build something that no other one builds: not some of the tests alone, unless for another processor."""
    presets = json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))
    some = {it["name"] for it in presets.get("configurePresets", ())
            if "CHUNKMEM_ONLY_TESTS" in it.get("cacheVariables", ()) and "toolchainFile" not in it}
    return [it["name"] for it in presets["buildPresets"] if it["configurePreset"] not in some]


def commands_of(root):
    """The commands of the first block of CONTRIBUTING.md; one whose remark is `once` sets something up."""
    block = re.search(r"^## Before you push\n+```\w*\n(.*?)^```", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S)
    lines = [line.partition("#") for line in block[1].splitlines()]
    return [command.strip() for command, _, remark in lines if command.strip() and not remark.strip().startswith("once")]


def commands_of_tests(root, presets):
    """What the tests of these presets call, in one text."""
    text = ""
    for preset in presets:
        listed = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1"], cwd=root, capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            text += " ".join(word for test in json.loads(listed.stdout)["tests"] for word in test.get("command", ()))
    return text


def left_out(root, presets, runs, called):
    """Sentences about what was not run."""
    ways, gaps = ways_of(root), gaps_of(runs)
    passed = {test for run in runs for test, reasons in run.items() if reasons is not None}
    not_asked = [way for test, way in ways.items() if test not in passed]
    if not_asked:
        yield f"ways to get chunkmem (docs/installing.md): {', '.join(not_asked)}"
    others = [it for it in presets_of(root) if it not in presets]
    if others:
        yield f"sh tests/run.sh {' '.join(others)}"
    for command in commands_of(root):
        if command.startswith("sh tests/run.sh"):
            continue  # by its presets
        file = re.search(r"\S+/\S+", command)
        if not file or file[0] not in called:
            yield command
    for reason, tests in sorted(gaps.items(), key=lambda it: it[1]):
        names = [f"{ways[test]} ({test})" if test in ways else test for test in tests]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield f"{', '.join(names[:SHOWN])}{more}: {reason}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("preset", nargs="+")
    given = parser.parse_args()
    files = [given.root / "build" / preset / "results.xml" for preset in given.preset]
    runs = [results_of(file) for file in files if file.exists()]
    lines = list(left_out(given.root, given.preset, runs, commands_of_tests(given.root, given.preset)))
    if lines:
        print("chunkmem: not run here:", *lines, sep="\n  ")
    else:
        print("chunkmem: every documented way was run")


if __name__ == "__main__":
    main()
