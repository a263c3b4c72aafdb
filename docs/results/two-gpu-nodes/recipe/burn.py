"""burn.py SECONDS GPU: copies and computes on a GPU."""

import sys
import time

import torch

gpu = f"cuda:{sys.argv[2]}"
x = torch.empty(1 << 28, dtype=torch.float32, pin_memory=True)
g = torch.empty(1 << 28, device=gpu)
m = torch.randn(8192, 8192, device=gpu, dtype=torch.bfloat16)
t = time.time()
while time.time() - t < float(sys.argv[1]):
    g.copy_(x, non_blocking=True)
    x.copy_(g, non_blocking=True)
    m @ m
    torch.cuda.synchronize()
