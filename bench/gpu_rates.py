#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rates of a GPU and its host, and T*: the tokens per step at which what moves hides behind what is computed.

    python3 bench/gpu_rates.py --adam build/gpu/bin/adam_bandwidth_bench --out rates.json
    python3 bench/gpu_rates.py --nominal --out rates.json     # rates that are assumed: for a dry run, never for a figure

With recomputation a GPU does 8 P T floating-point operations for P parameters and T tokens, so x bytes for each parameter over a
link of B bytes a second hide where T >= x F / (8 B). Weights come twice (4 B, as if none stayed), gradients go once (2 B), and an update takes
1/R of a second for each parameter. T* is the largest of the three; F is what a large product in bfloat16 reaches.
"""

import argparse
import json
import math
import re
import subprocess
import sys
import time

NOMINAL = {"to_device": 50e9, "to_host": 50e9, "flops": 650e12, "updates": 7e9}


def measured_copies(torch):
    """Bytes per second to the device and to the host, both at once, pinned."""
    size = 1 << 30
    host = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    device = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    best = [math.inf, math.inf]
    for turn in range(4):
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(2)]
        torch.cuda.synchronize()
        for which in range(2):
            with torch.cuda.stream(streams[which]):
                events[which][0].record()
                if which == 0:
                    device[0].copy_(host[0], non_blocking=True)
                else:
                    host[1].copy_(device[1], non_blocking=True)
                events[which][1].record()
        torch.cuda.synchronize()
        for which in range(2):
            if turn > 0:
                best[which] = min(best[which], events[which][0].elapsed_time(events[which][1]) / 1e3)
    return size / best[0], size / best[1]


def measured_flops(torch):
    """Operations per second of a large product in bfloat16, on random numbers."""
    side = 8192
    left, right = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(20):
        left @ right
    torch.cuda.synchronize()
    return 20 * 2 * side**3 / (time.perf_counter() - begin)


def measured_updates(program):
    """Parameters per second that Adam updates on the host, gradients beside them in 16 bits."""
    text = subprocess.run([program], capture_output=True, text=True, timeout=40).stdout
    found = re.search(r"^bf16, gradient separate .*?([0-9.]+) Gparam/s", text, re.MULTILINE)
    if not found:
        raise SystemExit(f"gpu_rates: {program} printed no rate of 'bf16, gradient separate'")
    return float(found.group(1)) * 1e9


def measured(program):
    import torch

    to_device, to_host = measured_copies(torch)
    return {"to_device": to_device, "to_host": to_host, "flops": measured_flops(torch), "updates": measured_updates(program)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nominal", action="store_true")
    parser.add_argument("--adam")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--out", required=True)
    chosen = parser.parse_args()
    if not chosen.nominal and not chosen.adam:
        parser.error("--adam is needed, or --nominal")
    rates = dict(NOMINAL) if chosen.nominal else measured(chosen.adam)
    needs = {
        "to_device": 4 * rates["flops"] / (8 * rates["to_device"]),
        "to_host": 2 * rates["flops"] / (8 * rates["to_host"]),
        "updates": rates["flops"] / (8 * rates["updates"]),
    }
    t_star = max(needs.values())
    one = max(2, 2 * math.ceil(t_star / chosen.context / 2))  # rows; even, so that it can be halved
    rates.update({"from": "nominal rates" if chosen.nominal else "measured rates", "needs": needs, "context": chosen.context,
                  "t_star": round(t_star), "batches": [one // 2, one, 4 * one]})
    with open(chosen.out, "w", encoding="utf-8") as file:
        json.dump(rates, file, indent=1)
    print(json.dumps(rates, indent=1))


if __name__ == "__main__":
    sys.exit(main())
