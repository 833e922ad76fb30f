#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long does one access to a resident tensor take, beside Gemini's chunk manager?

    python3 bench/peers/access.py --colossalai FOLDER [--tensors 400] [--passes 10] [--rounds 20]

Both have the same tensors in chunks, on the CPU, in one process. An access of ours is `acquire` and the release of its
pin. One of Gemini is what its hook does with the chunk manager before and after an operator: the chunk of the tensor is
looked up and accessed, the tensor goes to COMPUTE and to HOLD. Gemini's manager is written in Python and ours
in C++, so the ratio says what a trainer pays, not which algorithm is better. Printed are the best nanoseconds.
Peer: the chunk manager of ColossalAI (Apache-2.0) from its source, without the modules that its package loads at once:

    pip download colossalai==0.5.0 --no-deps --no-binary :all:; tar xf colossalai-0.5.0.tar.gz

Status: 0 measured, 4 skipped.
"""
import argparse
import ctypes
import importlib
import os
import pathlib
import sys
import time
import types

from entry import compiled

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import torch
except ImportError:
    torch = None


def ours(folder, compiler):
    library = compiled("access_entry", folder, compiler)
    library.peer_accesses.restype = ctypes.c_double
    library.peer_accesses.argtypes = [ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32]
    return library


def gemini(source):
    """Gemini's module of chunks, or the reason why there is none."""
    if torch is None:
        return None, "PyTorch is not there (pip install torch)"
    if source is None or not (source / "colossalai/zero/gemini/chunk/manager.py").exists():
        return None, "its source is not there (--colossalai FOLDER, see the head of this file)"
    for name in ("colossalai", "colossalai.zero", "colossalai.zero.gemini", "colossalai.zero.gemini.chunk"):
        package = types.ModuleType(name)  # without the imports of the package itself
        package.__path__ = [str(source / name.replace(".", "/"))]
        sys.modules[name] = package
    for name, function in (("colossalai.utils", "free_storage"), ("colossalai.quantization.fp8", "all_gather_fp8")):
        module = types.ModuleType(name)  # no access of one rank calls them
        setattr(module, function, None)
        sys.modules[name] = module
    try:
        return importlib.import_module("colossalai.zero.gemini.chunk.manager"), ""
    except ImportError as missing:
        return None, f"its source does not load here: {missing}"


def gemini_accesses(module, tensors, elements, passes, rounds):
    """Of the fastest round, for each access [ns]."""
    import torch.distributed as dist
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    states = module.TensorState
    manager = module.ChunkManager({1: {"chunk_size": elements * 8, "keep_gathered": True}}, torch.device("cpu"))
    all_tensors = [torch.nn.Parameter(torch.zeros(elements)) for _ in range(tensors)]
    for it in all_tensors:
        manager.register_tensor(it, "fp16_param", 1, dist.group.WORLD)
    manager.close_all_groups()
    manager.accessed_chunks.update(manager.get_chunks(all_tensors))  # its first access needs a GPU
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(passes):
            for it in all_tensors:
                chunks = manager.get_chunks((it,))
                manager.trans_tensor_state(it, states.COMPUTE)
                for chunk in chunks:
                    manager.access_chunk(chunk)
                manager.trans_tensor_state(it, states.HOLD)
        best = min(best, (time.perf_counter() - begin) * 1e9 / (passes * tensors))
    dist.destroy_process_group()
    return best


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--colossalai", type=pathlib.Path, help="folder of its unpacked source")
    options.add_argument("--tensors", type=int, default=400)
    options.add_argument("--elements", type=int, default=1024)
    options.add_argument("--passes", type=int, default=10)
    options.add_argument("--rounds", type=int, default=20, choices=range(2, 1000), metavar="2..999")
    options.add_argument("--compiler", default="g++")
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/peers")
    chosen = options.parse_args()
    module, why_not = gemini(chosen.colossalai)
    if module is None:
        print(f"SKIPPED: Gemini is left out: {why_not}")
        return 4
    chosen.folder.mkdir(parents=True, exist_ok=True)
    library = ours(chosen.folder, chosen.compiler)
    mine = library.peer_accesses(chosen.tensors, chosen.elements, chosen.passes, chosen.rounds)
    theirs = gemini_accesses(module, chosen.tensors, chosen.elements, chosen.passes, chosen.rounds)
    print(f"{chosen.tensors} resident tensors, best of {chosen.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print(f"  chunkmem, C++              {mine:8.1f} ns for one access")
    print(f"  Gemini's manager, Python   {theirs:8.1f} ns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
