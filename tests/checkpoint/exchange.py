# SPDX-License-Identifier: Apache-2.0
"""What Python's safetensors says about a file, and files that it writes, for export_values_test.cpp.

exchange.py list <file> <listing>          writes what is in the file
exchange.py write <listing> <raw> <numpy>  writes two files of what the listing says; the second without BF16, which numpy does not have
exchange.py ask                            fails where something is missing

A line of a listing is name, element type, extents ("-" for none) and bytes ("-" for none), the name and the bytes in hexadecimal digits.
"""
import ctypes
import json
import sys

import numpy
import safetensors
import safetensors.numpy

WORDS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "I32": "int32", "I64": "int64", "U8": "uint8"}


def line(name, kind, shape, content):
    return " ".join([name.encode().hex(), kind, ",".join(map(str, shape)) or "-", content.hex() or "-"])


def list_file(path, to):
    with open(path, "rb") as file:
        entries = safetensors.deserialize(file.read())
    with safetensors.safe_open(path, framework="np") as opened:
        if sorted(opened.keys()) != sorted(name for name, _ in entries):
            sys.exit("the two ways to open " + path + " find other names")
        for name, it in entries:
            if it["dtype"] == "BF16":
                continue
            array = opened.get_tensor(name)
            if (array.dtype.name, list(array.shape), array.tobytes()) != (WORDS[it["dtype"]], list(it["shape"]), bytes(it["data"])):
                sys.exit("numpy opens another " + name)
    with open(to, "w") as file:
        for name, it in sorted(entries):
            print(line(name, it["dtype"], it["shape"], bytes(it["data"])), file=file)


def serialize(tensors, metadata):
    if not hasattr(safetensors, "TensorSpec"):  # before 0.8
        words = {name: {"dtype": WORDS[kind], "shape": shape, "data": content} for name, (kind, shape, content) in tensors.items()}
        return safetensors.serialize(words, metadata)
    kept = {name: ctypes.create_string_buffer(content, max(len(content), 1)) for name, (_, _, content) in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(dtype=WORDS[kind], shape=shape, data_ptr=ctypes.addressof(kept[name]), data_len=len(content))
        for name, (kind, shape, content) in tensors.items()
    }
    return safetensors.serialize(specs, metadata)


def write_files(listing, raw, by_numpy):
    tensors = {}
    with open(listing) as file:
        for text in file:
            name, kind, shape, content = text.split()
            shape = [] if shape == "-" else [int(extent) for extent in shape.split(",")]
            tensors[bytes.fromhex(name).decode()] = (kind, shape, b"" if content == "-" else bytes.fromhex(content))
    metadata = {"format": "np", "a \"quoted\" \\ key\n": json.dumps({"é": [1, 2, {"x": "{["}]})}
    with open(raw, "wb") as file:
        file.write(serialize(tensors, metadata))
    arrays = {
        name: numpy.frombuffer(content, WORDS[kind]).reshape(shape) for name, (kind, shape, content) in tensors.items() if kind != "BF16"
    }
    safetensors.numpy.save_file(arrays, by_numpy, metadata)


if __name__ == "__main__":
    if sys.argv[1] == "list":
        list_file(*sys.argv[2:])
    elif sys.argv[1] == "write":
        write_files(*sys.argv[2:])
    else:
        print("safetensors", safetensors.__version__, "numpy", numpy.__version__)
