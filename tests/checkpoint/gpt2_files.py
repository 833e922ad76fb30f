# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 as Hugging Face's transformers writes and reads it, for foreign_names_test.cpp.

gpt2_files.py write <folder>                   writes model.safetensors and config.json of random weights
gpt2_files.py compare <folder> <file> <step>   fails unless the file has the logits of model.safetensors less `step` in each weight
gpt2_files.py ask                              fails where something is missing
"""
import os
import shutil
import sys
import tempfile

import safetensors.torch
import torch
import transformers


def model_of(folder):
    return transformers.GPT2LMHeadModel.from_pretrained(folder).eval()


def write(folder):
    torch.manual_seed(5)
    config = transformers.GPT2Config(vocab_size=61, n_positions=12, n_embd=8, n_layer=2, n_head=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder, safe_serialization=True)


def compare(folder, name, step):
    expected = model_of(folder)
    with torch.no_grad():
        for it in expected.parameters():
            it -= float(step)
    with tempfile.TemporaryDirectory() as other:
        shutil.copy(os.path.join(folder, "config.json"), other)
        tensors = safetensors.torch.load_file(os.path.join(folder, name))
        safetensors.torch.save_file(tensors, os.path.join(other, "model.safetensors"), {"format": "pt"})
        found = model_of(other)
    tokens = torch.arange(24).reshape(2, 12) * 5 % 61
    with torch.no_grad():
        if not torch.equal(expected(tokens).logits, found(tokens).logits):
            sys.exit("other logits for " + name)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    elif sys.argv[1] == "compare":
        compare(*sys.argv[2:])
    else:
        print("torch", torch.__version__, "transformers", transformers.__version__, "safetensors", safetensors.__version__)
