#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs end well when a user ends them, and a second start gives the result of a run that nobody ended.

    python3 interrupted.py <folder of programs> <folder for files> <moments> [<launcher of MPI>...]

Each program runs once undisturbed. Then it is ended at random moments: by turns under a terminal by Ctrl-C, in a pipe by SIGINT, and in a
pipe by SIGTERM. It has to exit with 130 or 143 once it listens. The same command then runs to its end, and its result has to be the same,
bit for bit. A pipe gets no carriage return, and no line of a terminal has two sentences. With a launcher, ranks and stages are processes
too, which are ended by the SIGUSR1 that the launcher hands on. CHUNKMEM_SEED chooses other moments. Where CHUNKMEM_FIGURES names a folder, the share of runs that went on in ten moments or more is
written to it.
"""

import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

PATIENCE = 300  # seconds of one run
SHORTEST = 0.001  # seconds after which a run is ended
FIGURE = 10  # moments from which on a figure is written
SMALL = "--layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 30 --threads 1 --every 12".split()
STAGES = "--layers 4 --width 32 --heads 2 --context 32 --batch 2 --steps 8 --microbatches 4 --threads 1 --every 5 --precision bf16".split()
MEASURED = {"memory", "rehearsed", "simulated"}  # members of results that a run in two parts, or a slower one, has otherwise


class Mistake(Exception):
    """One sentence on what a program did wrong."""


class Case:
    """A program with its arguments. `saves`: it goes on where it was ended. `is_quick`: it is tried with a single moment too."""

    def __init__(self, name, words, saves=False, launcher=(), is_quick=True):
        self.name, self.words, self.saves, self.launcher, self.is_quick = name, words, saves, list(launcher), is_quick

    def command(self, programs, folder, *more):
        words = [word.replace("FOLDER", folder) for word in self.words]
        return [*self.launcher, os.path.join(programs, words[0]), *words[1:], *more]


def cases(programs, examples, launcher):
    kept = ["--resume", "FOLDER/saved", "--checkpoint", "FOLDER/saved"]
    clusters, machines = os.path.join(examples, "configure/clusters"), os.path.join(examples, "max_model/machines")
    all_cases = [
        Case("gpt", ["gpt", *SMALL, "--sample", "0", "--metrics", "FOLDER/metrics.jsonl", *kept], True),
        Case("gpt of three ranks", ["gpt", *SMALL, "--ranks", "3", *kept], True),
        Case("gpt of three stages", ["gpt", *STAGES, "--stages", "3", "--schedule", "2bw", *kept], True),
        Case("gpt of two stages with replicas", ["gpt", *STAGES, "--stages", "2", "--replicas", "2", "--schedule", "zb-v", *kept], True,
             is_quick=False),
        Case("out_of_core", ["out_of_core", "--batch", "16", "--steps", "20"], is_quick=False),
        Case("configure", ["configure", "--cluster", f"{clusters}/one_slow_link.json", "--model", "PatrickStar/GPT2_1B", "--rows", "64",
                           "--schedules", "1f1b,zb-h1", "--plan", "FOLDER/best.plan"], is_quick=False),
        Case("max_model", ["max_model", "--machine", f"{machines}/v100_32_node.json", "--model", "GPT3_18B", "--csv", "FOLDER/rows.csv",
                           "--strategies", "patrickstar,gemini_static,elixir"]),
        Case("schedule", ["schedule", "--schedule", "zb-1p", "--stages", "8", "--microbatches", "24", "--svg", "FOLDER/picture.svg"], is_quick=False),
    ]
    if launcher:
        all_cases += [Case("gpt of two processes", ["gpt", *SMALL, "--shard", "3", *kept], True, [*launcher, "-np", "2"]),
                      Case("gpt of two stages that are processes", ["gpt", *STAGES, "--stages", "2", "--schedule", "2bw", *kept], True,
                           [*launcher, "-np", "2"])]
    here = [it for it in all_cases if os.path.exists(os.path.join(programs, it.words[0]))]
    for name in sorted({it.words[0] for it in all_cases} - {it.words[0] for it in here}):
        print(f"LEFT OUT: {name}, which is not in {programs}")
    return here


def run_to_end(command):
    """@return what it wrote as JSON and as text, and its seconds"""
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise Mistake(f"exit status {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    text = done.stdout[done.stdout.index("{"):]
    return json.loads(text), done.stderr, time.monotonic() - begin


def default_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def end_in_pipe(command, seconds, number):
    """@return the exit status, negative where the signal ended the process itself, and its output"""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=default_signals)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    try:
        text, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Mistake("it hangs after a signal") from None
    return process.returncode, text.decode(errors="replace")


def end_at_terminal(command, seconds, prepare=default_signals):
    """The same by Ctrl-C. `prepare` is called in the new process."""
    process, terminal = pty.fork()
    if process == 0:
        prepare()
        os.execv(command[0], command)
    os.set_blocking(terminal, False)
    begin, has_sent, text = time.monotonic(), False, b""
    while time.monotonic() - begin < PATIENCE:
        try:
            piece = os.read(terminal, 65536)
            text += piece
            if not piece:
                break
        except BlockingIOError:
            time.sleep(0.002)
        except OSError:  # the last process has closed it
            break
        if not has_sent and time.monotonic() - begin >= seconds:
            os.write(terminal, b"\x03")
            has_sent = True
    else:
        os.kill(process, signal.SIGKILL)
        raise Mistake("it hangs after Ctrl-C")
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), text.decode(errors="replace")


def lines_of_terminal(text):
    """The lines that are seen in the end, where carriage returns write over them."""
    for line in text.replace("\r\n", "\n").split("\n"):
        seen = ""
        for piece in line.split("\r"):
            erases = piece.startswith("\x1b[K")
            piece = piece.replace("\x1b[K", "")
            seen = piece if erases else piece + seen[len(piece):]
        yield seen


SENTENCES = re.compile(r"(^|.)(?:step \d+/\d+ |saved generation|resumed from|nothing to resume|ended by|held-out loss|gpt: )")


def check_lines(text, is_terminal):
    if not is_terminal and "\r" in text:
        raise Mistake(f"a carriage return in a pipe: {text[-300:]!r}")
    for line in lines_of_terminal(text) if is_terminal else text.split("\n"):
        line = line.replace("^C", "")
        if any(found.start() > 0 for found in SENTENCES.finditer(line)) and not line.startswith(("configure: ", "max_model: ")):
            raise Mistake(f"two sentences in a line: {line!r}")


def check_failed_save(programs, folder):
    """A save that fails is a sentence in a line of its own, at a terminal too."""
    def small_files():
        default_signals()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    status, text = end_at_terminal([os.path.join(programs, "gpt"), *SMALL, "--checkpoint", folder], PATIENCE, small_files)
    if status != 2 or "\x1b[Kgpt: " not in text:
        raise Mistake(f"exit status {status} of a save that fails: {text[-300:]!r}")
    check_lines(text, True)


def result_of(found):
    return {name: value for name, value in found.items() if name not in MEASURED}


def end_once(case, programs, folder, kind, seconds, expected):
    """Ends a run at a moment, and starts it again. A run that was over by then is tried again with half the time: the machine may have
    been slower before. @return its exit status: 0 where no moment was early enough"""
    command = case.command(programs, folder)
    number = signal.SIGINT if kind == "Ctrl-C" else signal.Signals[kind]
    status = 0
    while status == 0 and seconds > SHORTEST:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        status, text = end_at_terminal(command, seconds) if kind == "Ctrl-C" else end_in_pipe(command, seconds, number)
        seconds /= 2
    if status not in (0, 128 + number, -number):
        raise Mistake(f"exit status {status}: {text[-500:]}")
    check_lines(text, kind == "Ctrl-C")
    has_ended = f"ended by {number.name} after step " in text
    if case.saves and status == 128 + number and not has_ended and not case.launcher:
        raise Mistake(f"no sentence on the end: {text[-500:]}")
    left = [name for name in os.listdir(folder) if ".new" in name]
    if status > 0 and left:
        raise Mistake(f"unfinished files are left: {left}")
    found, said, _ = run_to_end(case.command(programs, folder, "--json"))
    if case.saves and "resumed from generation" not in said and (has_ended or status == 0 or "nothing to resume" not in said):
        raise Mistake(f"nothing is said of what was there: {said[:500]}")
    if result_of(found) != expected:
        raise Mistake(f"another result: {result_of(found)} and not {expected}")
    metrics = os.path.join(folder, "metrics.jsonl")
    if os.path.exists(metrics):
        with open(metrics, encoding="utf-8") as file:
            steps = [json.loads(line)["step"] for line in file]
        if steps != list(range(1, len(steps) + 1)) or len(steps) != found["steps"]:
            raise Mistake(f"the metrics are of the steps {steps}")
    return status


def main(programs, place, moments, launcher):
    examples = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    seed = int(os.environ.get("CHUNKMEM_SEED", "1"))
    print(f"seed {seed}")
    rng = random.Random(seed)
    kinds = ["Ctrl-C", "SIGINT", "SIGTERM"]
    runs = went_on = 0
    chosen = [it for it in cases(programs, examples, launcher) if it.is_quick or moments > 1]
    for index, case in enumerate(chosen):
        folder = os.path.join(place, "files")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        expected, _, seconds = run_to_end(case.command(programs, folder, "--json"))
        expected = result_of(expected)
        for moment in range(moments):
            kind = "SIGUSR1" if case.launcher else kinds[(index + moment) % len(kinds)]
            low = 0.3 if case.launcher or moments < FIGURE else 0  # a launcher first makes its processes, and a program its memory
            at = max(2 * SHORTEST, rng.uniform(low, 1) * seconds)
            runs += 1
            try:
                status = end_once(case, programs, folder, kind, at, expected)
                runs -= status == 0  # nobody ended it
                went_on += status != 0
                print(f"{case.name}: {kind} after {at:.2f} of {seconds:.2f} s, exit status {status}, went on", flush=True)
            except Mistake as mistake:
                print(f"FAILED: {case.name}: {kind} after {at:.2f} of {seconds:.2f} s: {mistake}", flush=True)
    try:
        check_failed_save(programs, os.path.join(place, "failed"))
    except Mistake as mistake:
        print(f"FAILED: {mistake}")
        return 1
    print(f"{went_on} of {runs} runs that were ended went on to the same result")
    figures = os.environ.get("CHUNKMEM_FIGURES")
    if figures and moments >= FIGURE and runs:
        record = {"name": "edge.interrupted_runs_resumed_percent", "value": 100.0 * went_on / runs, "unit": "%", "relation": "==", "bound": 100,
                  "command": "ctest --preset slow -R example.interrupted"}
        with open(os.path.join(figures, "interrupted.json"), "w", encoding="utf-8") as file:
            json.dump([record], file)
    return 0 if went_on == runs else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
