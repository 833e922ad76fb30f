# SPDX-License-Identifier: Apache-2.0
"""Figures of the scripts in this folder: printed, recorded, and compared with their bounds."""
import json
import os
import pathlib

HOLDS = {">=": lambda value, bound: value >= bound, "<=": lambda value, bound: value <= bound}


def figure(name, value, relation, bound, command):
    return {"name": name, "value": round(value, 4), "unit": "ratio", "relation": relation, "bound": bound, "command": command}


def report(figures, file):
    """Prints figures, and writes them to `file` in the folder CHUNKMEM_FIGURES. @return 0: all are within their bounds."""
    for it in figures:
        print(f"{it['name']} {it['value']} ({it['relation']} {it['bound']})")
    if "CHUNKMEM_FIGURES" in os.environ:
        text = ",\n ".join(json.dumps(it) for it in figures)
        pathlib.Path(os.environ["CHUNKMEM_FIGURES"], file).write_text(f"[{text}]\n")
    return 0 if all(HOLDS[it["relation"]](it["value"], it["bound"]) for it in figures) else 1
