# SPDX-License-Identifier: Apache-2.0
"""Trains the histories of update_counts_test.cpp with PyTorch's AdamW, and compares how they end.

    pytorch_adam.py ask              succeeds where PyTorch is there
    pytorch_adam.py compare FILE     succeeds where each history of the file ends as with PyTorch
"""
import json
import sys

try:
    import torch
except ImportError:
    sys.exit(3)

# Weights below 2 are rounded by 2^-24 of their size in each of at most fifteen steps, and a step moves them by about
# a hundredth, of which the rounding of roots and quotients is a few 2^-24.
BOUND = 2e-6


def single(values):
    return torch.tensor(values, dtype=torch.float32)


def ended(history):
    weights = [torch.nn.Parameter(single(values)) for values in history["first"]]
    adam = torch.optim.AdamW(weights, lr=history["learning_rate"], weight_decay=history["weight_decay"])
    for step in history["steps"]:
        if not step["counts"]:
            continue
        for weight, gradient in zip(weights, step["gradients"]):
            weight.grad = None if gradient is None else single(gradient)
        if step["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(weights, step["clip"])
        adam.step()
    return weights, [int(adam.state[weight]["step"]) if weight in adam.state else 0 for weight in weights]


def differences(history, distances):
    weights, updates = ended(history)
    for tensor, (weight, last) in enumerate(zip(weights, history["last"])):
        distances.append((weight.detach() - single(last)).abs().max().item())
        if not distances[-1] <= BOUND:
            yield f"weight {tensor} ends {distances[-1]} away"
        if updates[tensor] != history["updates"][tensor]:
            yield f"weight {tensor} has {history['updates'][tensor]} updates, and {updates[tensor]} with PyTorch"


def main():
    if sys.argv[1:] == ["ask"]:
        return 0
    with open(sys.argv[2], encoding="utf-8") as lines:
        histories = [json.loads(line) for line in lines]
    distances = []
    found = [f"history {number}: {text}" for number, it in enumerate(histories) for text in differences(it, distances)]
    print("\n".join(found[:20]))
    print(f"{len(histories)} histories, {sum(len(it['steps']) for it in histories)} steps, {len(found)} differences; "
          f"the farthest weight is {max(distances, default=0):.2g} away, of {BOUND:.2g} allowed")
    return 1 if found or not histories else 0


if __name__ == "__main__":
    sys.exit(main())
