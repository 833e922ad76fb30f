#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The workflow of the hosted CI runs what .ci/run does, and the hooks of pre-commit run files that exist.

    python3 tests/layout/check_workflow.py [<top of the tree>]

Where Python has no yaml (Debian: python3-yaml) the lines with commands and hooks are read as text.
"""
import re

import tree

try:
    import yaml
except ImportError:
    yaml = None

WORKFLOW = ".github/workflows/ci.yml"
HOOKS = ".pre-commit-config.yaml"


def command_of_ci(root):
    """What .ci/run starts, without redirections."""
    text = (root / ".ci/run").read_text(encoding="utf-8")
    return re.search(r"exec (sh [^<>\n]*[^<>\n ])", text)[1]


def content_of(root, path, violations):
    """A YAML file, or None with a sentence about what is wrong."""
    try:
        return yaml.safe_load((root / path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        violations.append(f"{path} is no YAML: {' '.join(str(error).split())}")
        return None


def workflow_violations(root, workflow):
    """Each job has a machine and a limit of time, and a job on Debian 12 has the step that .ci/run is."""
    command = command_of_ci(root)
    jobs = workflow["jobs"]
    for name, job in jobs.items():
        for key in ("runs-on", "timeout-minutes", "steps"):
            if key not in job:
                yield f"{WORKFLOW}: the job {name} has no {key}"
        for step in job.get("steps", ()):
            if ("run" in step) == ("uses" in step):
                yield f"{WORKFLOW}: a step of {name} needs either run or uses: {step}"
    runs = [step.get("run") for job in jobs.values() if job.get("container") == "debian:12" for step in job["steps"]]
    if command not in runs:
        yield f"{WORKFLOW} has no step '{command}' on debian:12, which is what .ci/run does"


def hook_violations(root, hooks):
    """Each hook has what pre-commit asks for, and runs files that exist."""
    for hook in (hook for repo in hooks["repos"] for hook in repo["hooks"]):
        for key in ("id", "name", "entry", "language"):
            if key not in hook:
                yield f"{HOOKS}: a hook has no {key}: {hook}"
        for path in re.findall(r"\b(?:tests|tools|cmake)/[^ ]+", hook.get("entry", "")):
            if not (root / path).exists():
                yield f"{HOOKS}: {hook['id']} runs {path}, which is not there"


def violations_in_text(root):
    """What lines tell without a reader of YAML: the command of .ci/run, and the files of hooks."""
    texts = {path: (root / path).read_text(encoding="utf-8") for path in (WORKFLOW, HOOKS)}
    command = command_of_ci(root)
    if not re.search(rf"^ +run: {re.escape(command)}$", texts[WORKFLOW], re.M):
        yield f"{WORKFLOW} has no step '{command}' on debian:12, which is what .ci/run does"
    hooks = re.findall(r"^ +- id: (\S+)\n((?: +(?!- )\S.*\n)*)", texts[HOOKS], re.M)
    yield from hook_violations(root, {"repos": [{"hooks": [
        {"id": name, **dict(re.findall(r"^ +(\w+): (.*)$", lines, re.M))} for name, lines in hooks]}]})


def violations_of(root):
    if not yaml:
        return list(violations_in_text(root))
    violations = []
    workflow, hooks = content_of(root, WORKFLOW, violations), content_of(root, HOOKS, violations)
    if workflow:
        violations += workflow_violations(root, workflow)
    if hooks:
        violations += hook_violations(root, hooks)
    return violations


def main():
    root = tree.root_of_arguments()
    if not yaml:
        print("LEFT OUT: whether the files are YAML; this Python has no yaml (Debian: apt-get install python3-yaml)")
    tree.report("workflow", violations_of(root), f"{WORKFLOW} runs '{command_of_ci(root)}'")


if __name__ == "__main__":
    main()
