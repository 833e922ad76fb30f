#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long do a save and a load take, beside safetensors and torch.save?

    python3 bench/peers/checkpoint.py [--gigabytes 1] [--rounds 5] [--folder build/peers]

All contestants save the same float32 arrays to one disk and load them into memory that is there already, in one
process, one after the other, in an order that turns from round to round. What they load is compared. Files are in the
page cache when they are loaded. Printed are the best and the median seconds, and the load of the machine. Peers:
safetensors with NumPy (pip install safetensors numpy) and PyTorch (pip install torch); one that is absent is left out.
Status: 0 within the bounds, 1 not, 4 skipped.
"""
import argparse
import ctypes
import os
import pathlib
import shutil
import statistics
import sys
import time

from entry import compiled
from figures import figure, report

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = "python3 bench/peers/checkpoint.py"
TENSORS = 16
PEER_FILES = ("numpy.safetensors", "synced.safetensors", "torch.pt")

try:
    import numpy
    import safetensors.numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None


def entry(folder, compiler):
    library = compiled("checkpoint_entry", folder, compiler)
    library.peer_model.restype = ctypes.c_void_p
    library.peer_model.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
    library.peer_exchange.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_bool]
    library.peer_save.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool]
    library.peer_load.restype = ctypes.c_uint64
    library.peer_load.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool]
    for name in ("peer_forget", "peer_finish"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    for name in ("peer_exchange", "peer_save", "peer_finish"):
        getattr(library, name).restype = ctypes.c_bool
    return library


class Ours:
    """chunkmem's saves and loads of one model."""

    def __init__(self, library, folder, arrays):
        self.library, self.folder, self.arrays, self.read = library, folder, arrays, 0
        self.model = library.peer_model(len(arrays), arrays[0].size)
        for index, it in enumerate(arrays):
            self.succeed(library.peer_exchange(self.model, index, it.ctypes.data, True))

    @staticmethod
    def succeed(done):
        if not done:
            raise RuntimeError("a call of chunkmem failed: see above")

    def path(self, name):
        return str(self.folder / name).encode()

    def save(self, syncs):
        self.succeed(self.library.peer_save(self.model, self.path("synced" if syncs else "unsynced"), syncs))

    def finish(self):
        self.succeed(self.library.peer_finish(self.model))

    def load(self, is_parallel):
        self.read = self.library.peer_load(self.model, self.path("unsynced"), is_parallel)
        self.succeed(self.read > 0)

    def expect_same(self):
        room = numpy.empty_like(self.arrays[0])
        for index, it in enumerate(self.arrays):
            self.succeed(self.library.peer_exchange(self.model, index, room.ctypes.data, False))
            if not numpy.array_equal(room, it):
                raise RuntimeError("chunkmem loaded other numbers")


def seconds_of(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def sync(path):
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def contestants(ours, folder, arrays):
    """name -> a call that is timed. Loads come after the saves that they need."""
    rooms = [numpy.empty_like(it) for it in arrays]
    named = {f"t{index}": it for index, it in enumerate(arrays)}
    plain, synced, torched = (folder / name for name in PEER_FILES)

    def copy(loaded):
        for index, room in enumerate(rooms):
            numpy.copyto(room, loaded[f"t{index}"])

    saves = {
        "chunkmem, synced": lambda: ours.save(True),
        "chunkmem": lambda: ours.save(False),
        "safetensors (NumPy)": lambda: safetensors.numpy.save_file(named, plain),
        "safetensors (NumPy), synced": lambda: (safetensors.numpy.save_file(named, synced), sync(synced)),
    }
    loads = {
        "chunkmem": lambda: ours.load(False),
        "chunkmem, 2 threads": lambda: ours.load(True),
        "safetensors (NumPy), with a copy": lambda: copy(safetensors.numpy.load_file(plain)),
        "safetensors (NumPy), memory of its own": lambda: safetensors.numpy.load_file(plain),
    }
    if torch is not None:
        tensors = {name: torch.from_numpy(it) for name, it in named.items()}
        saves["torch.save"] = lambda: torch.save(tensors, torched)
        loads["torch.load, with a copy"] = lambda: copy({k: v.numpy() for k, v in torch.load(torched).items()})
    return saves, loads


def remove_all(folder):
    """What was saved: writing a file anew costs other time than writing over one."""
    for name in ("synced", "unsynced"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in PEER_FILES:
        (folder / name).unlink(missing_ok=True)


def turn(calls, shift, seen):
    order = list(calls.items())
    shift %= len(order)
    for name, call in order[shift:] + order[:shift]:
        seen.setdefault(name, []).append(seconds_of(call))


def settle():
    """Until the disk has written what is not synced, has been told of files that were removed, and is not throttled any
    more for what was written before."""
    os.sync()
    time.sleep(5)


def first_and_second(ours):
    """Seconds of a first save into a new folder and of a later one, until `save` returns. A thread reads the older
    generation after that, which is not in this time."""
    shutil.rmtree(ours.folder / "synced", ignore_errors=True)
    settle()
    first = seconds_of(lambda: ours.save(True))
    ours.save(True)  # one more, so that the next one has a generation to remove
    ours.finish()
    settle()
    second = seconds_of(lambda: ours.save(True))
    ours.finish()
    return first, second


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--gigabytes", type=float, default=1.0)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--compiler", default="g++")
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/peers")
    chosen = options.parse_args()
    if numpy is None:
        print("SKIPPED: safetensors or NumPy is not there (pip install safetensors numpy)")
        return 4
    chosen.folder.mkdir(parents=True, exist_ok=True)
    made = numpy.random.default_rng(1)
    arrays = [made.random(int(chosen.gigabytes * 2**30 / 4 / TENSORS), dtype=numpy.float32) for _ in range(TENSORS)]
    ours = Ours(entry(chosen.folder, chosen.compiler), chosen.folder, arrays)
    saves, loads = contestants(ours, chosen.folder, arrays)
    seconds = [first_and_second(ours) for _ in range(chosen.rounds)]
    saved, loaded = {}, {}
    for index in range(chosen.rounds):
        remove_all(chosen.folder)
        settle()
        turn(saves, index, saved)
        ours.finish()
        turn(loads, index, loaded)
        ours.expect_same()
    size = sum(it.stat().st_size for it in (chosen.folder / "unsynced").iterdir())
    print(f"{sum(it.nbytes for it in arrays) / 2**30:.2f} GiB of float32, load {os.getloadavg()[0]:.1f}")
    for what, calls in (("save", saved), ("load", loaded)):
        for name, seen in calls.items():
            print(f"  {what}  {name:40} best {min(seen):6.3f}   median {statistics.median(seen):6.3f} s")
    first, second = (min(column) for column in zip(*seconds))
    print(f"  first save into a folder {first:6.3f}, second {second:6.3f} s")
    figures = [
        ("load_bytes_read_over_file", ours.read / size, "<=", 1.01),
        ("load_over_safetensors_copy", min(loaded["safetensors (NumPy), with a copy"]) / min(loaded["chunkmem"]), ">=", 1.0),
        ("second_save_over_first", second / first, "<=", 1.1),
    ]
    figures = [figure(f"checkpoint.{name}", *rest, COMMAND) for name, *rest in figures]
    remove_all(chosen.folder)
    return report(figures, "peers_checkpoint.json")


if __name__ == "__main__":
    sys.exit(main())
