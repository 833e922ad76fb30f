#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPT of examples/libtorch_gpt in PyTorch's FSDP2 with its states on the host: what that one is compared with.

    python3 bench/fsdp2.py --layers 40 --width 2048 --heads 16 --context 1024 --batch 16 --pin yes --report fsdp2.json

fully_shard over one rank with CPUOffloadPolicy, bfloat16 products over float32 parameters, fused AdamW on the host, every block
computed again in the backward pass. One group for each block, and one for the rest, as its documentation advises.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in [("layers", 4), ("width", 64), ("heads", 4), ("context", 64), ("batch", 2), ("vocabulary", 256), ("steps", 8),
                        ("warm-up", 3), ("seed", 1)]:
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--pin", choices=["yes", "no"], default="yes", help="pinned memory for what is on the host")
    parser.add_argument("--report", help="write tokens per second and losses to this file, as JSON")
    return parser.parse_args()


def model_of(torch, size):
    """The same layers, sizes and names as in network.hpp."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
            self.attn, self.proj = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
            self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

        def attention(self, x):
            rows, steps, width = x.shape
            q, k, v = self.attn(x).view(rows, steps, 3, size.heads, width // size.heads).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.proj(mixed.transpose(1, 2).reshape(rows, steps, width))

        def forward(self, x):
            x = x + self.attention(self.ln_1(x))
            return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(size.vocabulary, size.width)
            self.wpe = nn.Parameter(torch.empty(size.context, size.width))
            self.h = nn.ModuleList(Block() for _ in range(size.layers))
            self.ln_f = nn.LayerNorm(size.width)

        def forward(self, tokens):
            from torch.utils.checkpoint import checkpoint

            x = self.wte(tokens[:, :-1]) + self.wpe
            for block in self.h:
                x = checkpoint(block, x, use_reentrant=False)
            logits = functional.linear(self.ln_f(x), self.wte.weight)
            return functional.cross_entropy(logits.reshape(-1, size.vocabulary).float(), tokens[:, 1:].reshape(-1))

    return Gpt


def sharded(torch, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    with torch.device("meta"):
        model = model_of(torch, size)()
    how = {
        "mesh": init_device_mesh("cuda", (1,)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        "offload_policy": CPUOffloadPolicy(pin_memory=size.pin == "yes"),
    }
    for block in model.h:
        fully_shard(block, **how)
    fully_shard(model, **how)
    model.to_empty(device="cpu")
    torch.manual_seed(size.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = parameter.to_local()
            if values.dim() > 1:
                values.normal_(0.0, 0.02)
            else:
                values.fill_(1.0 if ".weight" in name else 0.0)
    return model


def train(torch, size):
    model = sharded(torch, size)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=size.learning_rate, betas=(0.9, 0.95), fused=True)
    random = torch.Generator().manual_seed(size.seed)
    losses = []
    warm = time.perf_counter()
    for step in range(size.steps):
        if step == size.warm_up:
            warm = time.perf_counter()
        tokens = torch.randint(0, 256, (size.batch, size.context + 1), generator=random).to("cuda")
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        print(f"step {step + 1}  loss {losses[-1]:.6f}", flush=True)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - warm
    return losses, (size.steps - size.warm_up) * size.batch * size.context / seconds


def main():
    size = read_options()
    if size.steps <= size.warm_up:
        sys.exit("fsdp2: --steps must be above --warm-up")
    try:
        import torch
    except ImportError:
        print("SKIPPED: this Python has no PyTorch")
        return 4
    if not torch.cuda.is_available():
        print("SKIPPED: no GPU")
        return 4
    torch.cuda.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        losses, rate = train(torch, size)
        torch.distributed.destroy_process_group()
    print(f"{rate:.0f} tokens/s, PyTorch {torch.__version__}")
    if size.report:
        losses = [loss if math.isfinite(loss) else None for loss in losses]  # JSON has no other word for it
        with open(size.report + ".unfinished", "w", encoding="utf-8") as file:
            json.dump({"tokens_per_second": rate, "losses": losses, "pin": size.pin, "pytorch": torch.__version__}, file)
        os.replace(size.report + ".unfinished", size.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
