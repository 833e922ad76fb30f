# SPDX-License-Identifier: Apache-2.0
"""What NumPy and PyTorch say about tensors that chunkmem lends, and whether theirs arrive, bit for bit.

exchange_dlpack.py <module>   the library made of python_module.cpp
exchange_dlpack.py ask        fails where NumPy is missing

PyTorch looks at the same types and at bfloat16, which NumPy does not have; where it is missing the last line says so.
"""
import ctypes
import gc
import random
import sys

import numpy

TYPES = {"float32": 0, "float16": 2, "int32": 3, "int64": 4, "uint8": 5}  # cm::dtype of what NumPy has; 1 is bfloat16
SHAPE = (3, 4, 5)
NAMES = {False: (b"dltensor", b"used_dltensor"), True: (b"dltensor_versioned", b"used_dltensor_versioned")}

capsules = ctypes.pythonapi
capsules.PyCapsule_New.restype = ctypes.py_object
capsules.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsules.PyCapsule_GetPointer.restype = ctypes.c_void_p
capsules.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsules.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsules.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]


def opened(path):
    library = ctypes.CDLL(path)
    library.chunkmem_error.restype = ctypes.c_char_p
    for age in ("older", "newer"):
        fill, lend = getattr(library, "chunkmem_fill_" + age), getattr(library, "chunkmem_lend_" + age)
        fill.restype, fill.argtypes = ctypes.c_bool, [ctypes.c_int, ctypes.c_void_p]
        lend.restype, lend.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_bool]
    library.chunkmem_is_held.restype = ctypes.c_bool
    return library


class Lent:
    """What a consumer asks: an object that makes one capsule, and says where its bytes are."""

    def __init__(self, library, kind, writes, newer):
        address = (library.chunkmem_lend_newer if newer else library.chunkmem_lend_older)(kind, writes)
        assert address, library.chunkmem_error()
        self.capsule = capsules.PyCapsule_New(address, NAMES[newer][0], None)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def fill(library, kind, producer, newer):
    """Hands a tensor of another library over. Returns the error, or nothing."""
    capsule = producer.__dlpack__(max_version=(1, 0)) if newer else producer.__dlpack__()
    if not capsules.PyCapsule_IsValid(capsule, NAMES[newer][0]):
        newer = not newer  # older producers know one struct alone
    address = capsules.PyCapsule_GetPointer(capsule, NAMES[newer][0])
    capsules.PyCapsule_SetName(capsule, NAMES[newer][1])
    done = (library.chunkmem_fill_newer if newer else library.chunkmem_fill_older)(kind, address)
    return "" if done else library.chunkmem_error().decode()


def some_bytes(size, seed):
    """Bits of all kinds; of every fourth eight bytes the real numbers are NaNs with payloads."""
    content = bytearray(random.Random(seed).randbytes(size))
    for at in range(0, size - 7, 32):
        content[at:at + 8] = b"\x81\x7f" * 4
    return bytes(content)


def knows_newer():
    return tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 1)


def check_numpy(library, name, kind, newer):
    size = 60 * numpy.dtype(name).itemsize
    content = some_bytes(size, kind)
    ours = numpy.frombuffer(content, dtype=name).reshape(SHAPE).copy()
    for producer in (ours, numpy.asfortranarray(ours), numpy.repeat(ours, 2, axis=2)[:, :, ::2], ours[::-1].copy()[::-1]):
        assert fill(library, kind, producer, newer) == "", library.chunkmem_error()
        lent = Lent(library, kind, True, newer)
        seen = numpy.from_dlpack(lent)
        assert (seen.dtype.name, seen.shape, seen.tobytes()) == (name, SHAPE, content), name
        assert library.chunkmem_is_held(kind)
        if newer:
            seen[0, 0, 0] = 1
        part = seen[1:]
        del seen, lent
        gc.collect()
        assert library.chunkmem_is_held(kind), "a view did not keep it"
        del part
        gc.collect()
        assert not library.chunkmem_is_held(kind), "the pin did not end"
        if newer:
            lent = Lent(library, kind, False, newer)
            seen = numpy.from_dlpack(lent)
            assert seen[0, 0, 0] == 1 and seen.tobytes()[ours.itemsize:] == content[ours.itemsize:]
            assert not seen.flags.writeable, "a pin for reading was lent for writing"
            del seen, lent
            gc.collect()
    assert "shape" in fill(library, kind, ours.reshape(4, 3, 5), newer)
    assert "bits" in fill(library, kind, numpy.zeros(SHAPE, dtype="float64"), newer)
    assert "bits" in fill(library, kind, numpy.zeros(SHAPE, dtype="uint8" if name != "uint8" else "int8"), newer)


def check_torch(library, torch):
    types = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int32: 3, torch.int64: 4, torch.uint8: 5}
    for kind_of_torch, kind in types.items():
        size = 60 * torch.empty(1, dtype=kind_of_torch).element_size()
        content = some_bytes(size, 10 + kind)
        ours = torch.frombuffer(bytearray(content), dtype=kind_of_torch).reshape(SHAPE)
        for producer in (ours, ours.permute(2, 0, 1).contiguous().permute(1, 2, 0)):
            assert fill(library, kind, producer, False) == "", library.chunkmem_error()
            lent = Lent(library, kind, True, False)
            seen = torch.from_dlpack(lent.capsule)
            assert (seen.dtype, tuple(seen.shape)) == (kind_of_torch, SHAPE)
            assert bytes(seen.flatten().view(torch.uint8).tolist()) == content
            del seen, lent
            gc.collect()
            assert not library.chunkmem_is_held(kind), "the pin did not end"


def main(path):
    if path == "ask":
        return
    library = opened(path)
    library.chunkmem_open()
    for newer in (False, True) if knows_newer() else (False,):
        for name, kind in TYPES.items():
            check_numpy(library, name, kind, newer)
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        check_torch(library, torch)
    library.chunkmem_close()
    print(f"numpy {numpy.__version__}, {'both structs' if knows_newer() else 'the older struct'}; "
          f"{'torch ' + torch.__version__ if torch is not None else 'no torch, so nobody looked at bfloat16'}")


if __name__ == "__main__":
    main(sys.argv[1])
