#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the file of gpt --metrics as a run of TensorBoard.

    python3 tools/metrics_to_tensorboard.py metrics.jsonl runs/mine
    tensorboard --logdir runs

Each member of a line but `step`, `time` and `skipped` becomes a scalar: loss, norm, learning_rate, seconds, tokens_per_second,
device_peak_bytes, loaded_bytes and written_back_bytes. A member that is null has no point. Wants the package tensorboard (pip install
tensorboard). The folder must have no run yet.
"""

import json
import os
import sys

NO_SCALARS = {"step", "time", "skipped"}


class Mistake(Exception):
    """One sentence about a file that is not what it should be."""


def read_lines(where):
    """@return a list of (step, time, scalars by name)"""
    lines = []
    try:
        with open(where, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                step, at = line["step"], line["time"]
                scalars = {name: float(value) for name, value in line.items() if name not in NO_SCALARS and value is not None}
                if isinstance(step, bool) or not isinstance(step, int) or not 0 < step < 2**63:
                    raise ValueError("a step is no number from 1")
                lines.append((step, float(at), scalars))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        place = f" in line {len(lines) + 1}" if not isinstance(wrong, OSError) else ""
        raise Mistake(f"{where} is no file of gpt --metrics{place}: {wrong}") from None
    if not lines:
        raise Mistake(f"{where} has no line: no step was over yet")
    return lines


def write_run(lines, folder):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    writer = EventFileWriter(folder)
    for step, at, scalars in lines:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=values)))
    writer.close()


def main(words):
    if len(words) != 2 or words[0].startswith("-"):
        print(__doc__.strip(), file=sys.stdout if words in (["--help"], ["-h"]) else sys.stderr)
        return 0 if words in (["--help"], ["-h"]) else 2
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        print("SKIPPED: no package tensorboard (pip install tensorboard)")
        return 4
    try:
        lines = read_lines(words[0])
        if os.path.isdir(words[1]) and any("tfevents" in name for name in os.listdir(words[1])):
            raise Mistake(f"{words[1]} has a run already (name another folder)")
        write_run(lines, words[1])
    except (Mistake, OSError) as mistake:
        print(f"metrics_to_tensorboard: {mistake}", file=sys.stderr)
        return 2
    print(f"{len(lines)} steps in {words[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
