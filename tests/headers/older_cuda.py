#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What includes headers of CUDA compiles with those of older toolkits too: 12.0, 12.2, 12.4 and 12.8.

    python3 tests/headers/older_cuda.py [--all] [nccl=folder] [toolkit=folder] [clang=program] compiler folder

Nothing is linked and nothing runs, so the headers of a toolkit are enough. They come from PyPI into <folder>, once. A version that
cannot be had is named and left out. nccl is the folder of nccl.h, toolkit the include folder of the toolkit that is here: none of its
headers may be taken for an older one. With --all also the programs of the GPU with the first and the last version, and the kernels by
a clang that knows CUDA, since no nvcc comes from PyPI for these versions.

Status: 0 all compile, 1 one does not, 4 skipped.
"""
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = {"12.0": 12000, "12.2": 12020, "12.4": 12040, "12.8": 12080}
WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"]
KERNELS = ["-x", "cuda", "-std=c++20", "--cuda-gpu-arch=sm_80", "-fsyntax-only", "-Wno-unknown-cuda-version", "-Wno-unknown-attributes"]
# A call of CUDA 13, which none of the older ones accepts. If it compiles, the headers are those of another version.
NEWER = ("#include <cuda_runtime_api.h>\n"
         "int copy(cudaMemcpyAttributes* how) { return cudaMemcpyBatchAsync(0, 0, 0, 1, how, 0, 1, cudaStream_t{}); }\n")


def packages_of(version):
    """The packages whose headers belong together. <nv/target> is first in the one of 12.4, and the same in earlier toolkits."""
    found = [f"nvidia-{name}-cu12=={version}.*" for name in ("cuda-runtime", "cuda-nvcc", "nvtx")]
    return [*found, f"nvidia-cuda-cccl-cu12=={version if version >= '12.4' else '12.4'}.*"]


def fetch(version, folder, failed):
    """The include folder of a version, and why there is none. After a failure nothing is asked for any more."""
    here = folder / version
    if (here / "complete").exists():
        return here / "include", failed
    if failed:
        return None, failed
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
                   "--retries", "1", "--timeout", "10", "--dest", wheels, *packages_of(version)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return None, "pip download took more than five minutes"
        if done.returncode != 0:
            return None, "pip download: " + (done.stdout.strip().splitlines() or ["failed"])[-1]
        for wheel in pathlib.Path(wheels).glob("*.whl"):
            with zipfile.ZipFile(wheel) as content:
                for name in content.namelist():
                    for part in ("include/", "nvvm/libdevice/"):
                        if f"/{part}" in name and not name.endswith("/"):
                            to = here / part / name.split(f"/{part}", 1)[1]
                            to.parent.mkdir(parents=True, exist_ok=True)
                            to.write_bytes(content.read(name))
    (here / "bin").mkdir(exist_ok=True)  # clang takes a folder with it for a toolkit
    (here / "include/curand_mtgp32_kernel.h").touch()  # clang includes it where one is, and nobody here uses it
    (here / "complete").write_text("\n".join(packages_of(version)) + "\n")
    return here / "include", ""


def headers_of(component):
    listed = (ROOT / "cmake/opt_in_headers.txt").read_text().splitlines()
    return [f"chunkmem/{line.split()[0]}" for line in listed if line.endswith(f" {component}")]


def foreign(dependencies, toolkit):
    """What was taken from the toolkit that is here."""
    if toolkit is None:
        return []
    files = [pathlib.Path(word).resolve() for word in dependencies.read_text().replace("\\\n", " ").split()[1:]]
    return [str(it) for it in files if it.is_relative_to(toolkit.resolve()) and it.name != "nccl.h"]


def compile_one(command, source, toolkit):
    """What is wrong with a file; nothing where all is well."""
    with tempfile.TemporaryDirectory() as scratch:
        dependencies = pathlib.Path(scratch) / "dependencies"
        run = subprocess.run([*command, "-MD", "-MF", str(dependencies), str(source)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)
        if run.returncode != 0 or run.stdout:
            return f"{run.stdout}\n{source} does not compile"
        others = foreign(dependencies, toolkit)
        return f"{source} was compiled with {', '.join(others)}, which is not of this version" if others else ""


def work_of(version, include, given, compiler, everything):
    """(command, file) of all that is compiled with a version."""
    nccl = given.get("nccl")
    host = [compiler, *WARNINGS, "-isystem", str(include), f"-I{ROOT}/include"]
    host += [f"-I{ROOT}/{it}" for it in ("tests", "examples", "examples/gpt")]
    after = ["-isystem", nccl, "-DGPT_HAS_NCCL"] if nccl else []  # that folder may hold another CUDA as well
    named = [word for it in headers_of("cuda") + (headers_of("nccl") if nccl else []) for word in ("-include", it)]
    yield [*host, *after, f"-DWANTED={VERSIONS[version]}", *named], ROOT / "tests/headers/older_cuda.cpp"
    if not everything:
        return
    if version in (min(VERSIONS), max(VERSIONS)):
        for source in sorted((ROOT / "examples/gpt_cuda").glob("*.cpp")):
            if source.name != "lt_products.cpp":  # cuBLASLt is large, and is another library
                yield [*host, *after], source
        yield host, ROOT / "bench/cuda/copies_bench.cpp"
    if clang := given.get("clang"):
        kernels = [clang, *KERNELS, f"--cuda-path={include.parent}", "-isystem", str(include), f"-I{ROOT}/include"]
        yield kernels, ROOT / "tests/kernels/compiled_kernels.cu"


def main(arguments):
    given = dict(it.split("=", 1) for it in arguments if "=" in it)
    words = [it for it in arguments if "=" not in it and it != "--all"]
    if len(words) != 2:
        sys.exit(__doc__)
    compiler, folder = words[0], pathlib.Path(words[1])
    toolkit = pathlib.Path(given["toolkit"]) if given.get("toolkit") else None
    for missing in ("nccl", "clang"):
        if not given.get(missing) and (missing == "nccl" or "--all" in arguments):
            print(f"LEFT OUT: what needs {missing}, which was not found")
    errors, tried, why = [], 0, ""
    for version in VERSIONS:
        include, why = fetch(version, folder, why)
        if include is None:
            print(f"LEFT OUT: CUDA {version}: {why}")
            continue
        probe = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-isystem", str(include), "-x", "c++", "-"], input=NEWER,
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if "cudaMemcpyBatchAsync" not in probe.stdout and "cudaMemcpyAttributes" not in probe.stdout:
            errors.append(f"CUDA {version}: headers that take a call of CUDA 13: {probe.stdout}")
        work = list(work_of(version, include, given, compiler, "--all" in arguments))
        errors += [f"CUDA {version}: {said}" for command, source in work if (said := compile_one(command, source, toolkit))]
        print(f"CUDA {version}: {', '.join(source.name for _, source in work)}", flush=True)
        tried += 1
    print(*errors, sep="\n")
    if errors:
        sys.exit(f"older CUDA: failed ({len(errors)} errors)")
    if tried == 0:
        print("SKIPPED: no headers of an older CUDA: " + why)
        sys.exit(4)
    print(f"older CUDA: {tried} of {len(VERSIONS)} versions, with {compiler}")


if __name__ == "__main__":
    main(sys.argv[1:])
