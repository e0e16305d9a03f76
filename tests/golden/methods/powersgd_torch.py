# SPDX-License-Identifier: MIT
"""PowerSGD as PyTorch does it: DistributedDataParallel with powerSGD_hook, in float64, three processes over gloo.

Needs PyTorch (`pip install torch numpy`; the stored file was made with 2.11.0). What makes the hook's steps those of
engine/sync/powersgd.h:
  start_powerSGD_iter = WARMUP         whole gradients before it; the hook wants at least 2
  min_compression_rate = min_rate      1 here, for which both take the two matrices and leave the vector
  use_error_feedback, warm_start       as we always do
  orthogonalization_epsilon = 0        and rank 2, for which the hook takes Gram-Schmidt; above it takes QR, whose columns may
                                       have other signs, and those of P and Q cancel in the gradient
  the first Q                          ours: the hook draws its own, so its memory is filled before it would do so
Then all of these are equal in exact arithmetic: parameters, Q, and the mean of the residuals over ranks. The hook makes
Q orthonormal before it is used, which changes neither the span of M Q nor what Gram-Schmidt makes of it. A rank's own residual
differs: the hook takes off the mean of all ranks where we take off the rank's own projection. The next step sees the sum
over ranks alone, which is the same, so the file holds the mean (`mean_state`). The hook keeps one for the vector too,
whose mean is zero.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

from problem import DECAY, MOMENTUM, RATE, SHAPES, STEPS, Record, mean, normal, size, uniform

RANKS, R, WARMUP = 3, 2, 2
MATRICES = [name for name, shape in SHAPES.items() if len(shape) > 1]


class Model(torch.nn.Module):
    """Its loss has the gradients of problem.py."""

    def __init__(self):
        super().__init__()
        # A module's parameter cannot have a dot in its name.
        self.names = {name.replace(".", "_"): name for name in SHAPES}
        for plain, name in self.names.items():
            start = torch.tensor([u / 2 for u in uniform(name, size(name))], dtype=torch.float64)
            self.register_parameter(plain, torch.nn.Parameter(start.view(SHAPES[name])))

    def forward(self, rank, step):
        loss = 0
        for plain, name in self.names.items():
            common = torch.tensor(uniform(f"{name} common {step}", size(name)), dtype=torch.float64)
            own = torch.tensor(uniform(f"{name} rank {rank} step {step}", size(name)), dtype=torch.float64)
            w = self.get_parameter(plain).view(-1)
            loss = loss + (w * w).sum() / 4 + (w * (common + own / 2)).sum()
        return loss


def hook_from_our_start(names):
    """powerSGD_hook, with our first Q in its memory. names: by the address of a parameter."""

    def hook(state, bucket):
        index = bucket.index()
        if state.iter >= state.start_powerSGD_iter and index not in state.q_memory_dict:
            ps, qs = [], []
            for name in layout_of(bucket, names):
                n, m = SHAPES[name][0], size(name) // SHAPES[name][0]
                ours = torch.tensor(normal(0, f"powersgd.q.{name}", R * m), dtype=torch.float64)
                ps.append(torch.zeros(n * R, dtype=torch.float64))
                qs.append(ours.view(R, m).t().reshape(-1))
            state.p_memory_dict[index], state.q_memory_dict[index] = torch.cat(ps), torch.cat(qs)
        return powersgd.powerSGD_hook(state, bucket)

    return hook


def layout_of(bucket, names):
    """The matrices of a bucket in its order."""
    return [names[p.data_ptr()] for p in bucket.parameters() if names[p.data_ptr()] in MATRICES]


def run_rank(rank, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = Model()
    names = {model.get_parameter(plain).data_ptr(): name for plain, name in model.names.items()}
    order = []  # of parameters in the only bucket, once DistributedDataParallel has laid it out for good
    state = powersgd.PowerSGDState(
        None,
        matrix_approximation_rank=R,
        start_powerSGD_iter=WARMUP,
        min_compression_rate=1,
        use_error_feedback=True,
        warm_start=True,
        orthogonalization_epsilon=0,
    )
    inner = hook_from_our_start(names)

    def hook(state, bucket):
        assert bucket.index() == 0 and bucket.is_last()
        order[:] = [names[p.data_ptr()] for p in bucket.parameters()]
        return inner(state, bucket)

    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    steps = []
    for step in range(STEPS):
        optimizer.zero_grad()
        ddp(rank, step).backward()
        optimizer.step()
        kept = {}
        if state.error_dict:
            begin = q_begin = 0
            for name in order:
                error = state.error_dict[0][begin : begin + size(name)]
                begin += size(name)
                if name not in MATRICES:
                    continue
                m = size(name) // SHAPES[name][0]
                q = state.q_memory_dict[0][q_begin : q_begin + m * R].view(m, R)
                q_begin += m * R
                kept[name] = (error.tolist(), q.t().reshape(-1).tolist())
        w = {name: model.get_parameter(plain).detach().view(-1).tolist() for plain, name in model.names.items()}
        steps.append((w, kept))
    results[rank] = steps
    dist.destroy_process_group()


class Replica:
    """What Record wants of a rank."""

    def __init__(self, w):
        self.w = w


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(run_rank, args=(port, results), nprocs=RANKS)
        ranks = [results[i] for i in range(RANKS)]
    record = Record("powersgd", RANKS, f"rank = {R}\nmin_rate = 1\n", common=f"dense_steps = {WARMUP}\n", name="powersgd_torch")
    for of_ranks in zip(*ranks):
        kept = [k for _, k in of_ranks]
        state = {f"powersgd.{name}.q": [k[name][1] for k in kept] for name in kept[0]}
        mean_state = {f"powersgd.{name}.residual": mean([k[name][0] for k in kept]) for name in kept[0]}
        record.step([Replica(w) for w, _ in of_ranks], state, mean_state)
    record.write()


if __name__ == "__main__":
    main()
