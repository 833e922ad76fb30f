#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long does an update by Adam take, beside DeepSpeed's CPUAdam and PyTorch's fused one?

    python3 bench/peers/adam.py [--sizes 20 24 26] [--threads 1 2] [--rounds 9] [--deepspeed FOLDER] [--avx2]

All contestants work on the same arrays in one process. The arrays are cut into parts of 2^22 elements: the contestants of
a row take the next parts in an order by chance, so that what they have to do with memory is of one moment, and a ratio is the median
of such moments. One thread is timed by its own time on the processor, which other programs change little; several are timed by
the clock, so their figures want an idle machine: on a busy one take --threads 1, and the record says so. Printed are the
best and the median time of each in nanoseconds for each element, and the load of the machine. With --avx2, all contestants
use AVX2 alone, whatever the processor has, and figures have the ending _avx2. 2^20 elements are one part, which is in the
cache. Figures that name a peer need both of them. Peers:
PyTorch (pip install torch), and DeepSpeed's own source, which is compiled here:

    pip download deepspeed==0.15.4 --no-deps --no-binary :all: --no-build-isolation; tar xf deepspeed-*.tar.gz

A peer that is absent is left out, with the reason. What is compiled stays in --folder: remove it for another compiler. DeepSpeed updates weights of 16 bits in three passes, as its trainer
does: the gradient becomes float32, Adam works on the master, the weight is rounded from it.
Status: 0 within the bounds, 1 not, 4 skipped.
"""
import argparse
import ctypes
import importlib.util
import os
import pathlib
import random
import statistics
import subprocess
import sys
import sysconfig
import time

from entry import compiled
from figures import figure, report

ROOT = pathlib.Path(__file__).resolve().parents[2]
AVX2 = "--avx2" in sys.argv[1:]
COMMAND = "python3 bench/peers/adam.py --deepspeed FOLDER"
FLOAT32, BFLOAT16, FLOAT16 = range(3)
PART = 1 << 22  # elements
RATE, BETA1, BETA2, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01

if AVX2:
    os.environ["ATEN_CPU_CAPABILITY"] = "avx2"  # PyTorch reads it once
try:
    import torch
except ImportError:
    torch = None


class Arrays(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("value", "gradient", "momentum", "variance", "master")] + [
        ("elements", ctypes.c_uint64), ("value_type", ctypes.c_int32), ("moment_type", ctypes.c_int32)]


def ours(folder, compiler):
    """The functions of adam_entry.cpp."""
    library = compiled("adam_entry", folder, compiler)
    library.peer_pool.restype = ctypes.c_void_p
    library.peer_adam.argtypes = [ctypes.c_void_p, ctypes.POINTER(Arrays), ctypes.c_uint32, ctypes.c_bool, ctypes.c_bool]
    library.peer_touch.argtypes = [ctypes.c_void_p, ctypes.POINTER(Arrays), ctypes.c_void_p]
    return library


def deepspeed(source, folder, compiler):
    """DeepSpeed's module, compiled as its own builder does, or the reason why there is none."""
    if torch is None:
        return None, "PyTorch is not there (pip install torch)"
    if source is None or not (source / "csrc/adam/cpu_adam.cpp").exists():
        return None, "its source is not there (--deepspeed FOLDER, see the head of this file)"
    made = folder / f"deepspeed_adam{'_avx2' if AVX2 else ''}.so"
    if not made.exists():
        top = pathlib.Path(torch.__file__).parent
        flags = pathlib.Path("/proc/cpuinfo").read_text()
        width = "-D__AVX512__" if " avx512f" in flags else "-D__AVX256__" if " avx2" in flags else "-D__SCALAR__"
        if AVX2:
            width = "-D__AVX256__"
        command = [compiler, "-O3", "-std=c++20", "-march=x86-64-v3" if AVX2 else "-march=native", "-fopenmp", "-fPIC", "-shared", width,
                   "-DTORCH_EXTENSION_NAME=deepspeed_adam", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
                   "-I", source / "csrc/includes", "-I", top / "include", "-I", top / "include/torch/csrc/api/include",
                   "-I", sysconfig.get_paths()["include"], source / "csrc/adam/cpu_adam.cpp",
                   source / "csrc/adam/cpu_adam_impl.cpp", "-L", top / "lib", "-ltorch", "-ltorch_cpu", "-lc10",
                   "-ltorch_python", f"-Wl,-rpath,{top / 'lib'}", "-o", f"{made}.part"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return None, "its source does not compile here: " + done.stderr.strip().splitlines()[0]
        os.rename(f"{made}.part", made)
    spec = importlib.util.spec_from_file_location("deepspeed_adam", made)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.create_adam(0, RATE, BETA1, BETA2, EPSILON, DECAY, True, False)
    return module, ""


class Model:
    """One parameter of every kind: the arrays that all contestants work on, in parts, and what they may hold."""

    def __init__(self, elements):
        self.made = torch.Generator().manual_seed(elements)
        self.parts = [(begin, min(PART, elements - begin)) for begin in range(0, elements, PART)]
        self.master, self.gradient, self.momentum, self.variance = (torch.empty(elements) for _ in range(4))
        self.half = {kind: tuple(torch.empty(elements, dtype=kind) for _ in range(3))
                     for kind in (torch.bfloat16, torch.float16)}
        self.moments = tuple(torch.empty(elements, dtype=torch.bfloat16) for _ in range(2))
        self.fill(False)

    def numbers(self, is_wild, scale):
        elements = self.master.numel()
        if is_wild:  # every pattern of bits: denormals, NaN, infinities
            bits = torch.randint(-2**31, 2**31 - 1, (elements,), generator=self.made, dtype=torch.int32)
            return bits.view(torch.float32)
        return torch.randn(elements, generator=self.made) * scale

    def fill(self, is_wild):
        for it, scale in ((self.master, 0.1), (self.gradient, 0.01), (self.momentum, 0.01), (self.variance, 0.01)):
            it.copy_(self.numbers(is_wild, scale))
        self.variance.abs_()
        for value, gradient, taken in self.half.values():
            if is_wild:
                for it in (value, gradient, taken):
                    it.view(torch.int16).random_(-2**15, 2**15 - 1, generator=self.made)
                continue
            value.copy_(self.master)
            gradient.copy_(self.gradient)
            taken.copy_(self.gradient)
        for half, full in zip(self.moments, (self.momentum, self.variance)):
            half.copy_(full)

    def lists(self):
        all_lists = [self.master, self.gradient, self.momentum, self.variance, *self.moments]
        return all_lists + [it for three in self.half.values() for it in three]

    def kept(self, is_wild):
        self.fill(is_wild)
        return [it.clone() for it in self.lists()]

    def restore(self, kept):
        """An update leaves no denormals, so each one begins with the numbers of the begin."""
        for it, number in zip(self.lists(), kept):
            it.copy_(number)


class Contest:
    """Contestants on one model: a name and a function for each."""

    def __init__(self, library, peer, threads, model):
        self.library, self.peer, self.step = library, peer, 1
        self.threads = threads
        self.pool = library.peer_pool(threads)
        self.sink = (ctypes.c_uint16 * 64)()
        self.model = model
        torch.set_num_threads(threads)
        try:  # DeepSpeed's runtime is the system's, PyTorch brings its own
            ctypes.CDLL("libgomp.so.1").omp_set_num_threads(threads)
        except OSError:
            pass
        self.rows = [self.rows_of(begin, count) for begin, count in model.parts]

    def wake(self, part, row, name):
        """Begins a turn of several threads. Threads of other contestants have come to rest. Those of this one are awake,
        and on processors of their own: the scheduler of a virtual machine may let them begin on one processor, for
        milliseconds."""
        if self.threads > 1:
            time.sleep(0.01)
            others = [self.rows[(part + other) % len(self.rows)] for other in range(1, len(self.rows))] or self.rows
            for turn in range(3):
                others[turn % len(others)][row][name]()

    def adam(self, arrays, to_nearest=False):
        return lambda: self.library.peer_adam(self.pool, ctypes.byref(arrays), self.step, to_nearest, AVX2)

    def touch(self, arrays):
        return lambda: self.library.peer_touch(self.pool, ctypes.byref(arrays), self.sink)

    def deepspeed(self, value, gradient, momentum, variance):
        self.peer.adam_update(0, self.step, RATE, BETA1, BETA2, EPSILON, DECAY, True, value, gradient, momentum, variance)

    def torch_fused(self, value, gradient, momentum, variance):
        torch._fused_adamw_([value], [gradient], [momentum], [variance], [], [torch.tensor(float(self.step))], lr=RATE,
                            beta1=BETA1, beta2=BETA2, weight_decay=DECAY, eps=EPSILON, amsgrad=False, maximize=False)

    def rows_of(self, begin, count):
        """row -> contestant -> a function that updates the part from an element on."""
        it = self.model
        master, full_gradient, *full = (each[begin:begin + count] for each in (it.master, it.gradient, it.momentum, it.variance))
        moments = [each[begin:begin + count] for each in it.moments]

        def arrays(value, gradient, moments, master, kind, moment_kind):
            return Arrays(value.data_ptr(), gradient.data_ptr(), moments[0].data_ptr(), moments[1].data_ptr(),
                          master.data_ptr() if master is not None else None, count, kind, moment_kind)

        fp32 = arrays(master, full_gradient, full, None, FLOAT32, FLOAT32)
        made = {"fp32": {"chunkmem": self.adam(fp32), "touch": self.touch(fp32),
                         "PyTorch fused": lambda: self.torch_fused(master, full_gradient, *full)}}
        if self.peer is not None:
            made["fp32"]["DeepSpeed"] = lambda: self.deepspeed(master, full_gradient, *full)
        for name, kind, number in (("bf16", torch.bfloat16, BFLOAT16), ("fp16", torch.float16, FLOAT16)):
            value, gradient, taken = (each[begin:begin + count] for each in it.half[kind])
            in_place = arrays(taken, taken, full, master, number, FLOAT32)
            separate = arrays(value, gradient, full, master, number, FLOAT32)
            row = {"chunkmem in place": self.adam(in_place), "chunkmem": self.adam(separate), "touch": self.touch(in_place)}
            if self.peer is not None:
                wide = torch.empty_like(full_gradient)

                def three_passes(value=value, gradient=gradient, wide=wide):
                    wide.copy_(gradient)
                    self.deepspeed(master, wide, *full)
                    value.copy_(master)

                row["DeepSpeed, three passes"] = three_passes
            made[f"{name} with master"] = row
        value, gradient, _ = (each[begin:begin + count] for each in it.half[torch.bfloat16])
        alone = arrays(value, gradient, full, None, BFLOAT16, FLOAT32)
        small = arrays(value, gradient, moments, None, BFLOAT16, BFLOAT16)
        made["bf16 alone"] = {"stochastic": self.adam(alone), "to nearest": self.adam(alone, True),
                              "all of 16 bits, stochastic": self.adam(small),
                              "all of 16 bits, to nearest": self.adam(small, True)}
        return made


def times_of(contest, rounds, begins=(None,)):
    """For each of `begins`, numbers to begin with or none: row -> contestant -> nanoseconds for each element. The n-th times
    of all contestants of a row are of one moment: each had a part of its own, one after the other."""
    now = time.thread_time if contest.threads == 1 else time.perf_counter
    all_found = [{row: {name: [] for name in calls} for row, calls in contest.rows[0].items()} for _ in begins]
    parts = contest.model.parts
    for turn in range(rounds + 1):  # the first one warms up
        for row, calls in contest.rows[0].items():
            names = list(calls)
            for begin, found in zip(begins, all_found):
                if begin is not None:
                    contest.model.restore(begin)
                for group in range(max(1, len(parts) // len(names))):
                    for place, name in enumerate(random.sample(names, len(names))):
                        part = (group * len(names) + place) % len(parts)
                        contest.wake(part, row, name)
                        start = now()
                        contest.rows[part][row][name]()
                        if turn > 0:
                            found[row][name].append((now() - start) * 1e9 / parts[part][1])
        contest.step += 1
    return all_found


def show(size, threads, times):
    print(f"\n2^{size} elements, {threads} thread(s), load {os.getloadavg()[0]:.1f}")
    for row, calls in times.items():
        for name, seen in calls.items():
            print(f"  {row:17} {name:28} best {min(seen):7.3f}   median {statistics.median(seen):7.3f} ns")


def ratio(over, under):
    """The median of what was measured at one moment."""
    return statistics.median(a / b for a, b in zip(over, under))


def command_of(options, chosen):
    """The command whose figures these are: with all that changes them."""
    changed = [(name, getattr(chosen, name)) for name in ("sizes", "threads", "rounds")
               if getattr(chosen, name) != options.get_default(name)]
    given = [f" --{name} {' '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in changed]
    return "".join([COMMAND, *given, " --avx2" if AVX2 else ""])


def figures_of(all_times, tame, wild, has_peer, command):
    """The figures of all runs: the worst of each."""
    mixed, fp32, touch = [], [], []
    for (size, threads), times in all_times.items():
        if size < 24:
            continue  # in the cache
        if has_peer:
            fp32 += [ratio(times["fp32"][peer], times["fp32"]["chunkmem"]) for peer in ("PyTorch fused", "DeepSpeed")]
        for row, name in (("fp32", "chunkmem"), ("bf16 with master", "chunkmem in place"),
                          ("fp16 with master", "chunkmem in place")):
            if threads == 1:
                touch.append(ratio(times[row]["touch"], times[row][name]))
            if has_peer and row != "fp32":
                mixed.append(ratio(times[row]["DeepSpeed, three passes"], times[row]["chunkmem"]))
    wilder = [ratio(wild[row][name], tame[row][name]) for row in wild for name in wild[row]
              if name.startswith("chunkmem") or row == "bf16 alone"]
    known = []

    def add(name, ratios, worst, relation, bound):
        if ratios:
            known.append(figure(f"optimizer.{name}{'_avx2' if AVX2 else ''}", worst(ratios), relation, bound, command))

    add("adam_fp32_over_fastest_peer", fp32, min, ">=", 0.95)
    add("adam_mixed_over_deepspeed", mixed, min, ">=", 1.3)
    add("adam_over_in_place_bandwidth", touch, min, ">=", 0.9 if AVX2 else 0.85)
    add("wild_over_tame_time", wilder, max, "<=", 1.1)
    return known


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)  # of --avx2: see AVX2
    options.add_argument("--sizes", type=int, nargs="+", default=[20, 24, 26])
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--avx2", action="store_true", help="all contestants use AVX2 alone")
    options.add_argument("--compiler", default="g++")
    options.add_argument("--deepspeed", type=pathlib.Path, help="folder of its unpacked source")
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/peers")
    chosen = options.parse_args()
    if torch is None:
        print("SKIPPED: PyTorch is not there, whose arrays all contestants share (pip install torch)")
        return 4
    chosen.folder.mkdir(parents=True, exist_ok=True)
    library = ours(chosen.folder, chosen.compiler)
    peer, why_not = deepspeed(chosen.deepspeed, chosen.folder, chosen.compiler)
    if why_not:
        print(f"DeepSpeed is left out: {why_not}")
    all_times = {}
    for size in chosen.sizes:
        model = Model(1 << size)
        for threads in chosen.threads:
            [all_times[size, threads]] = times_of(Contest(library, peer, threads, model), chosen.rounds)
            show(size, threads, all_times[size, threads])
        del model
    size = 24 if 24 in chosen.sizes else chosen.sizes[0]
    threads = 1  # waking several would update the numbers that were restored
    model = Model(1 << size)
    begins = [model.kept(is_wild) for is_wild in (False, True)]
    restored = times_of(Contest(library, peer, threads, model), chosen.rounds, begins)
    for name, times in zip(("Tame numbers, restored before each row:", "Every pattern of bits, restored:"), restored):
        print("\n" + name, end="")
        show(size, threads, times)
    figures = figures_of(all_times, *restored, peer is not None, command_of(options, chosen))
    return report(figures, f"peers_adam{'_avx2' if AVX2 else ''}.json")


if __name__ == "__main__":
    sys.exit(main())
