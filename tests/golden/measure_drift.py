#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far PyTorch's own float32 runs of the model fixtures drift from its float64 run; prints Markdown tables."""

import torch

from model_run import SETTINGS, run


def relative(a: float, b: float) -> float:
    return abs(a - b) / abs(b)


def main() -> None:
    print(f"PyTorch {torch.__version__}")
    for name in SETTINGS:
        exact = run(name, torch.float64)
        losses = " ".join(f"{x:.5f}" for x in exact.losses)
        print(f"\n{name}: losses in float64 {losses}, evaluation {exact.evaluation_loss:.5f}\n")
        print("| float32 run | step 0 | largest of later steps | last step | evaluation | gradient norms at step 0 |")
        print("|---|---|---|---|---|---|")
        for threads in [1, 2]:
            for channels_last in [False, True]:
                for mkldnn in [True, False]:
                    torch.set_num_threads(threads)
                    with torch.backends.mkldnn.flags(enabled=mkldnn):
                        r = run(name, torch.float32, channels_last)
                    drift = [relative(a, b) for a, b in zip(r.losses, exact.losses)]
                    evaluation = relative(r.evaluation_loss, exact.evaluation_loss)
                    norms = max(relative(r.grad_norms[n], exact.grad_norms[n])
                                for n in r.grad_norms if exact.grad_norms[n] > 1e-9)
                    layout = "channels_last" if channels_last else "contiguous"
                    kernels = "oneDNN" if mkldnn else "native"
                    print(f"| {threads} thread{'s' if threads > 1 else ''}, {layout}, {kernels} | {drift[0]:.1e} | "
                          f"{max(drift[1:]):.1e} | {drift[-1]:.1e} | {evaluation:.1e} | "
                          f"{norms:.1e} |", flush=True)


if __name__ == "__main__":
    main()
