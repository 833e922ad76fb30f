# SPDX-License-Identifier: Apache-2.0
"""Repeats twenty steps of the GPT example with automatic differentiation and compares every loss.

    python3 oracle.py <gpt> <text> <folder>

Written from the formulas, not from the example: a decoder-only transformer with pre-norm layers (Radford et al. 2019), GELU
in its tanh form (Hendrycks and Gimpel 2016), tied embeddings, causal softmax attention (Vaswani et al. 2017), mean cross
entropy, AdamW (Loshchilov and Hutter 2017), clipping by the global norm (Pascanu et al. 2013), dynamic loss scaling
(Micikevicius et al. 2017). Differentiated by JAX in double precision on the CPU. Weights and batches are those that the
example exports. JAX comes from PyPI into a virtual environment in <folder>; where that fails the comparison is skipped.

Status: 0 all agree, 1 they do not, 4 skipped.
"""

import json
import math
import os
import subprocess
import sys

MODEL = ["--layers", "2", "--width", "32", "--heads", "2", "--context", "16", "--batch", "2", "--steps", "20",
         "--learning-rate", "0.003"]

# Largest accepted relative difference of each loss.
#
# fp32: single against double precision. A step adds roundings of about 2^-24 of the values, and training accumulates
# them: 2e-7 was measured over eight seeds. A beta of 0.951 for 0.95 makes the difference 7e-5, a missing weight decay
# 2e-3.
#
# 16 bits: both sides round the same numbers to the same grid, the example from single precision, the oracle from
# double. They fall on different sides of a tie for about one number in (spacing of the grid / error in fp32) = 2^-8 /
# 1e-6 for bf16: a few in ten thousand numbers are one spacing apart, in gradients and then in weights. A weight that is
# one spacing apart changes the loss by its slope times the spacing. Signs are random, so that all of them together
# change a loss near 5 by some 1e-6 of it: 1e-6 to 7e-6 was measured for bf16. In fp16 a slope at the edge of rounding
# to zero may be zero on one side and the least number on the other, which Adam turns into a whole step: 5e-7 to 1.1e-5
# was measured. Gradients that are not rounded make the difference 5e-5, weights that are not rounded 4e-4, truncation
# instead of rounding 2e-3. The bound is meaningful only if the rounding itself moves a loss further. So the losses must
# also be nearer to the oracle that rounds than half of the effect of rounding.
BOUNDS = {"float32": 2e-6, "bfloat16": 2e-5, "float16": 5e-5}

CASES = [
    ("fp32", ["--precision", "fp32"]),
    ("fp32, 2 batches a step, clipped", ["--precision", "fp32", "--accumulate", "2", "--clip", "0.5"]),
    ("bf16, separate", ["--precision", "bf16"]),
    ("bf16, in place, clipped", ["--precision", "bf16", "--gradient", "in_place", "--clip", "0.5"]),
    ("bf16, 2 batches a step", ["--precision", "bf16", "--accumulate", "2"]),
    ("fp16, in place", ["--precision", "fp16", "--gradient", "in_place"]),
]


def skip(reason):
    print("SKIPPED: " + reason)
    sys.exit(4)


def environment_with_jax(folder):
    """The Python of a virtual environment in `folder` that has JAX."""
    python = os.path.join(folder, "venv", "bin", "python")
    probe = [python, "-c", "import jax"]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    if os.path.exists(python) and subprocess.run(probe, **quiet).returncode == 0:
        return python
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", os.path.join(folder, "venv")], **quiet)
    if made.returncode != 0:
        skip("no virtual environment can be made (Debian: apt-get install python3-venv)")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    try:
        done = subprocess.run(install + ["jax>=0.4.30"], timeout=600, **quiet)
    except subprocess.TimeoutExpired:
        skip("pip install jax took more than ten minutes")
    if done.returncode != 0:
        skip("pip install jax: " + (done.stdout.strip().splitlines() or ["failed"])[-1])
    if subprocess.run(probe, **quiet).returncode != 0:
        skip("jax was installed but cannot be imported on this processor")
    return python


def run_example(gpt, text, folder, words):
    exported = os.path.join(folder, "export.json")
    report = os.path.join(folder, "report.json")
    command = [gpt, "--text", text] + MODEL + words + ["--sample", "0", "--export", exported, "--report", report]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit("failed: " + " ".join(command) + "\n" + done.stdout)
    with open(exported) as file:
        training = json.load(file)
    with open(report) as file:
        losses = json.load(file)["losses"]
    return training, losses[1:-1]  # without the losses of the held-out text


def compare(gpt, text, folder):
    import numpy as np

    all_agree = True
    for name, words in CASES:
        training, losses = run_example(gpt, text, folder, words)
        expected = Oracle(training, training["precision"]).train()
        worst = float(np.max(np.abs(np.array(losses) / np.array(expected) - 1)))
        bound = BOUNDS[training["precision"]]
        agree = len(losses) == len(expected) and worst <= bound
        line = f"{name:34} {len(losses)} losses from {losses[0]:.4f} to {losses[-1]:.4f}, differ by {worst:.2e} at most"
        line += f" (accepted {bound:.0e})"
        if training["precision"] != "float32":
            unrounded = Oracle(training, "float32").train()
            effect = float(np.max(np.abs(np.array(expected) / np.array(unrounded) - 1)))
            line += f"; the rounding moves them by {effect:.2e}"
            agree = agree and worst <= effect / 2
        print(line + ("" if agree else "  TOO MUCH"), flush=True)
        all_agree = all_agree and agree
    return 0 if all_agree else 1


class Oracle:
    """One training, from its first weights to its last loss."""

    def __init__(self, training, precision):
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        import jax.numpy as jnp
        import numpy as np

        self.jax, self.jnp, self.np = jax, jnp, np
        self.it = training
        self.round = self.rounding(precision)
        self.scaled = precision == "float16"
        self.masters = [np.array(values, np.float64).reshape(shape)
                        for values, shape in zip(training["parameters"], self.shapes(), strict=True)]
        self.momenta = [np.zeros_like(each) for each in self.masters]
        self.variances = [np.zeros_like(each) for each in self.masters]
        self.updates = 0
        self.scale = training["first_loss_scale"] if self.scaled else 1.0
        self.good_steps = 0
        # The table of tokens is used twice; its gradient arrives in two parts, each of which is rounded.
        self.slopes = jax.jit(jax.value_and_grad(self.loss, argnums=(0, 1)))

    def rounding(self, precision):
        np = self.np
        if precision == "float32":
            return lambda values: values
        import ml_dtypes

        kind = ml_dtypes.bfloat16 if precision == "bfloat16" else np.float16

        def nearest(values):
            with np.errstate(over="ignore"):
                return values.astype(np.float32).astype(kind).astype(np.float64)

        return nearest

    def shapes(self):
        width = self.it["width"]
        layer = [(2, width), (width, 3 * width), (3 * width,), (width, width), (width,),
                 (2, width), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
        return [(256, width), (self.it["context"], width)] + layer * self.it["layers"] + [(2, width)]

    # The model.

    def loss(self, weights, head, windows, weight_of_position):
        """Cross entropy of all positions of all windows, each times `weight_of_position`."""
        jax, jnp = self.jax, self.jnp
        tokens, targets = windows[:, :-1], windows[:, 1:]
        x = weights[0][tokens] + weights[1]
        for layer in range(self.it["layers"]):
            norm1, qkv, qkv_bias, out, out_bias, norm2, up, up_bias, down, down_bias = weights[2 + 10 * layer:12 + 10 * layer]
            x = x + self.attention(self.normed(x, norm1) @ qkv + qkv_bias) @ out + out_bias
            x = x + self.gelu(self.normed(x, norm2) @ up + up_bias) @ down + down_bias
        logits = self.normed(x, weights[-1]) @ head.T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
        return -jnp.sum(chosen) * weight_of_position

    def normed(self, x, gain_and_bias):
        jnp = self.jnp
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) * gain_and_bias[0] + gain_and_bias[1]

    def gelu(self, x):
        return 0.5 * x * (1 + self.jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def attention(self, qkv):
        jax, jnp = self.jax, self.jnp
        rows, context, _ = qkv.shape
        heads = self.it["heads"]
        query, key, value = (part.reshape(rows, context, heads, -1) for part in jnp.split(qkv, 3, axis=-1))
        scores = jnp.einsum("rqhd,rkhd->rhqk", query, key) / math.sqrt(query.shape[-1])
        seen = jnp.tril(jnp.ones((context, context), bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
        return jnp.einsum("rhqk,rkhd->rqhd", weights, value).reshape(rows, context, -1)

    # The training.

    def train(self):
        return [self.step(number) for number in range(len(self.it["windows"]))]

    def step(self, number):
        np = self.np
        windows = np.array(self.it["windows"][number])
        stored = [self.round(each) for each in self.masters]
        positions = windows.shape[0] * self.it["context"]
        gradients = [np.zeros_like(each) for each in stored]
        loss = 0.0
        for micro_batch in np.split(windows, self.it["micro_batches"]):
            part, (slopes, head) = self.slopes(stored, stored[0], micro_batch, self.scale / positions)
            loss += float(part) / self.scale
            gradients[0] = self.round(gradients[0] + np.asarray(head))
            gradients = [self.round(old + np.asarray(fresh)) for old, fresh in zip(gradients, slopes, strict=True)]
        if all(np.all(np.isfinite(each)) for each in gradients):
            self.update([each / self.scale for each in gradients], self.it["learning_rates"][number])
            self.good_steps += 1
            if self.scaled and self.good_steps == self.it["scale_window"]:
                self.scale *= self.it["scale_growth"]
                self.good_steps = 0
        else:
            self.scale *= self.it["scale_backoff"]
            self.good_steps = 0
        return loss

    def update(self, gradients, rate):
        np, it = self.np, self.it
        if it["clip"] > 0:
            norm = math.sqrt(sum(float(np.sum(each**2)) for each in gradients))
            gradients = [each * min(1.0, it["clip"] / (norm + 1e-6)) for each in gradients]
        self.updates += 1
        for at, gradient in enumerate(gradients):
            self.momenta[at] = it["beta1"] * self.momenta[at] + (1 - it["beta1"]) * gradient
            self.variances[at] = it["beta2"] * self.variances[at] + (1 - it["beta2"]) * gradient**2
            momentum = self.momenta[at] / (1 - it["beta1"]**self.updates)
            variance = self.variances[at] / (1 - it["beta2"]**self.updates)
            self.masters[at] = (self.masters[at] * (1 - rate * it["weight_decay"])
                                - rate * momentum / (np.sqrt(variance) + it["epsilon"]))


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    gpt, text, folder = sys.argv[1], sys.argv[2], os.path.abspath(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    if len(sys.argv) == 4:
        python = environment_with_jax(folder)
        sys.exit(subprocess.run([python, __file__, gpt, text, folder, "compare"]).returncode)
    sys.exit(compare(gpt, text, folder))


if __name__ == "__main__":
    main()
