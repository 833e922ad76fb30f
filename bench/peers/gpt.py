#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many tokens a second does the GPT of the examples train, beside the same model in PyTorch on the CPU?

    python3 bench/peers/gpt.py <gpt> [--text LICENSE] [--steps 20] [--threads 1]

Both train the same weights on the same windows in float32, with AdamW. chunkmem has a quarter of the device memory that
the model needs, and then all of it; PyTorch has the whole model in its memory. The losses have to agree. PyTorch brings
another matrix library, so the ratio compares two kernels and not two memories: what chunkmem costs is the difference of
its two lines. The first step is not counted. Status: 0 the losses agree, 1 not, 4 skipped.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import torch
except ImportError:
    torch = None

LAYER = 10  # tensors of a layer


def run_example(gpt, folder, chosen, words):
    """The exported training, its losses, and the tokens a second of each step."""
    exported, report = folder / "export.json", folder / "report.json"
    command = [gpt, "--text", chosen.text, "--steps", str(chosen.steps), "--threads", str(chosen.threads), "--sample", "0",
               "--export", exported, "--report", report, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("failed: " + " ".join(map(str, command)) + "\n" + done.stdout + done.stderr)
    rates = [float(it) for it in re.findall(r"([0-9.]+) tokens/s", done.stdout)]
    return json.loads(exported.read_text()), json.loads(report.read_text())["losses"][1:-1], rates


class Model:
    """The example's model, written from its formulas: see examples/gpt/oracle/oracle.py."""

    def __init__(self, training):
        self.it, width = training, training["width"]
        layer = [(2, width), (width, 3 * width), (3 * width,), (width, width), (width,),
                 (2, width), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
        shapes = [(256, width), (training["context"], width)] + layer * training["layers"] + [(2, width)]
        self.weights = [torch.tensor(values, dtype=torch.float32).reshape(shape).requires_grad_()
                        for values, shape in zip(training["parameters"], shapes, strict=True)]
        self.adam = torch.optim.AdamW(self.weights, betas=(training["beta1"], training["beta2"]), eps=training["epsilon"],
                                      weight_decay=training["weight_decay"], fused=True)

    def normed(self, x, gain_and_bias):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gain_and_bias[0], gain_and_bias[1], 1e-5)

    def attention(self, qkv):
        rows, context, _ = qkv.shape
        query, key, value = (part.reshape(rows, context, self.it["heads"], -1).transpose(1, 2) for part in qkv.chunk(3, -1))
        seen = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return seen.transpose(1, 2).reshape(rows, context, -1)

    def loss(self, windows):
        tokens, targets = windows[:, :-1], windows[:, 1:]
        x = self.weights[0][tokens] + self.weights[1]
        for layer in range(self.it["layers"]):
            norm1, qkv, qkv_bias, out, out_bias, norm2, up, up_bias, down, down_bias = (
                self.weights[2 + LAYER * layer:2 + LAYER * (layer + 1)])
            x = x + self.attention(self.normed(x, norm1) @ qkv + qkv_bias) @ out + out_bias
            x = x + torch.nn.functional.gelu(self.normed(x, norm2) @ up + up_bias, approximate="tanh") @ down + down_bias
        logits = self.normed(x, self.weights[-1]) @ self.weights[0].T
        return torch.nn.functional.cross_entropy(logits.reshape(-1, 256), targets.reshape(-1))

    def step(self, number):
        """The loss, and the tokens a second."""
        begin = time.perf_counter()
        windows = torch.tensor(self.it["windows"][number])
        for group in self.adam.param_groups:
            group["lr"] = self.it["learning_rates"][number]
        self.adam.zero_grad()
        loss = self.loss(windows)
        loss.backward()
        self.adam.step()
        return loss.item(), windows.shape[0] * self.it["context"] / (time.perf_counter() - begin)


def show(name, rates):
    rates = rates[1:]
    print(f"  {name:42} best {max(rates):9.0f}   median {statistics.median(rates):9.0f} tokens/s")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("gpt", type=pathlib.Path)
    options.add_argument("--text", type=pathlib.Path, default=ROOT / "LICENSE")
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--threads", type=int, default=1, help="of the update, and of PyTorch")
    chosen = options.parse_args()
    if torch is None:
        print("SKIPPED: PyTorch is not there (pip install torch)")
        return 4
    torch.set_num_threads(chosen.threads)
    with tempfile.TemporaryDirectory() as folder:
        training, losses, tight = run_example(chosen.gpt, pathlib.Path(folder), chosen, [])
        _, roomy_losses, roomy = run_example(chosen.gpt, pathlib.Path(folder), chosen, ["--device-memory", "4GiB"])
    model = Model(training)
    found = [model.step(number) for number in range(len(training["windows"]))]
    worst = max(abs(seen / expected - 1) for seen, (expected, _) in zip(losses, found, strict=True))
    print(f"{sum(it.numel() for it in model.weights)} weights, {chosen.threads} thread(s), load {os.getloadavg()[0]:.1f}")
    show("chunkmem, a quarter of the memory", tight)
    show("chunkmem, all of it", roomy)
    show("PyTorch, all of it (its own matrix library)", [rate for _, rate in found])
    print(f"losses from {losses[0]:.4f} to {losses[-1]:.4f}, PyTorch's differ by {worst:.1e} at most")
    return 0 if losses == roomy_losses and worst < 1e-4 and math.isfinite(worst) else 1


if __name__ == "__main__":
    sys.exit(main())
