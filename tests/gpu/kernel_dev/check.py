"""Correctness of kernel variants on a GPU against float64, with poisoned outputs. Prints one line a case; exits 1 on a failure."""
import sys
from concurrent.futures import ProcessPoolExecutor

import torch

from launch import Kernel, dense_call, varlen_call
from nvrtc import compile_source
from variants import Variant

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def keep_matrix(rules, sq, sk):
    i, j = torch.arange(sq, device="cuda")[:, None], torch.arange(sk, device="cuda")[None]
    return j <= i + (sk - sq) if rules == "causal" else torch.ones(sq, sk, dtype=torch.bool, device="cuda")


def attention(q, k, v, keep, scale, dtype):
    """Dense attention in `dtype`; masked keys are left out even where they are NaN. Returns o and lse."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    s = (q.to(dtype) @ k.to(dtype).transpose(-1, -2)).double() * scale
    s = torch.where(keep, s, torch.full_like(s, -torch.inf))
    lse = torch.logsumexp(s, -1)
    p = torch.where(keep, (s - torch.where(lse.isinf(), 0, lse)[..., None]).exp(), 0)
    finite = v.double().nan_to_num(0, 0, 0)
    o = p.to(dtype).double() @ finite
    bad = (~v.double().isfinite())
    if bad.any():  # what a kept non-finite value does to a row
        for b, h, row in bad.any(-1).nonzero().tolist():
            hit = keep[:, row]
            o[b, h, hit] = torch.where(bad[b, h, row], v[b, h, row].double(), o[b, h, hit])
    return o, lse


def report(name, o, lse, exact, plain, exact_lse):
    bound = 2 * (plain - exact).nan_to_num(0, 0, 0).abs().max() + exact.nan_to_num(0, 0, 0).abs().max() * 2**-8
    same = (o.isfinite() == exact.isfinite()).all()
    error = (o - exact).nan_to_num(0, 0, 0).abs().max()
    ok = bool(same and error <= bound)
    lse_error = 0.0
    if lse is not None:
        ok &= bool((lse.isinf() == exact_lse.isinf()).all())
        lse_error = (lse - exact_lse).nan_to_num(0, 0, 0).abs().max()
        ok &= bool(lse_error <= 2e-3)
    print(f"{'ok  ' if ok else 'FAIL'} {name}: error {float(error):.2e} of {float(bound):.2e}, lse {float(lse_error):.1e}"
          f"{'' if same else ', finite and non-finite differ'}", flush=True)
    return ok


def dense_case(kernel, v, shape, alignment_offset=0, poison="", scale=None):
    b, hq, hk, sq, sk = shape
    dt = TYPES[v.dtype]
    def tensor(heads, rows, dim):
        flat = torch.randn(b * rows * heads * dim + alignment_offset, device="cuda").to(dt)
        return flat[alignment_offset:].view(b, rows, heads, dim).transpose(1, 2)
    q, k, val = tensor(hq, sq, v.head_dim_qk), tensor(hk, sk, v.head_dim_qk), tensor(hk, sk, v.dv)
    o = torch.full_like(tensor(hq, sq, v.dv), torch.nan)
    lse = torch.full((b, hq, sq), torch.nan, device="cuda")
    if poison:
        k[:, :, sk // 2, 0] = torch.nan
        val[:, :, sk // 2, ::3] = torch.nan if poison == "nan" else torch.inf
    scale = v.head_dim_qk**-0.5 if scale is None else scale
    dense_call(kernel, v, q, k, val, o, lse, scale)()
    torch.cuda.synchronize()
    keep = keep_matrix(v.rules, sq, sk)
    if poison:
        k[:, :, sk // 2, 0] = 0
        rows = keep[:, sk // 2]
        exact, exact_lse = attention(q, k, val, keep, scale, torch.float64)
        plain, _ = attention(q, k, val, keep, scale, dt)
        exact[:, :, rows], exact_lse[:, :, rows] = torch.nan, torch.nan  # a kept NaN key spoils the whole row
        o, lse = o.double(), lse.double()
        lse[:, :, rows] = torch.nan
        return report(f"{v.name()} {shape} {poison}", o, lse, exact, plain, exact_lse)
    exact, exact_lse = attention(q, k, val, keep, scale, torch.float64)
    plain, _ = attention(q, k, val, keep, scale, dt)
    return report(f"{v.name()} {shape} scale {scale:.3g}", o.double(), lse.double() if v.lse else None, exact, plain, exact_lse)


def value_poison_case(kernel, v, shape):
    """NaN and Inf in V only: they reach exactly the rows and columns that keep them."""
    b, hq, hk, sq, sk = shape
    dt = TYPES[v.dtype]
    q, k, val = (torch.randn(b, h, s, d, device="cuda").to(dt) for h, s, d in
                 ((hq, sq, v.head_dim_qk), (hk, sk, v.head_dim_qk), (hk, sk, v.dv)))
    for row in (sk // 3, sk // 2, sk - 1):
        val[:, :, row, row % v.dv] = torch.nan
        val[:, :, row, (row + 5) % v.dv] = torch.inf
    o = torch.full((b, hq, sq, v.dv), torch.nan, device="cuda", dtype=dt)
    lse = torch.full((b, hq, sq), torch.nan, device="cuda")
    dense_call(kernel, v, q, k, val, o, lse)()
    torch.cuda.synchronize()
    keep = keep_matrix(v.rules, sq, sk)
    scale = v.head_dim_qk**-0.5
    exact, exact_lse = attention(q, k, val, keep, scale, torch.float64)
    plain, _ = attention(q, k, val, keep, scale, dt)
    return report(f"{v.name()} {shape} V poison", o.double(), lse.double(), exact, plain, exact_lse)


def varlen_case(kernel, v, lens_q, lens_kv, hq, hk):
    dt = TYPES[v.dtype]
    cu = lambda l: torch.tensor([0] + l, device="cuda").cumsum(0).int()
    cq, ck = cu(lens_q), cu(lens_kv)
    q = torch.randn(sum(lens_q), hq, v.head_dim_qk, device="cuda").to(dt)
    k = torch.randn(sum(lens_kv), hk, v.head_dim_qk, device="cuda").to(dt)
    val = torch.randn(sum(lens_kv), hk, v.dv, device="cuda").to(dt)
    o = torch.full((sum(lens_q), hq, v.dv), torch.nan, device="cuda", dtype=dt)
    lse = torch.full((hq, sum(lens_q)), torch.nan, device="cuda")
    varlen_call(kernel, v, q, k, val, o, cq, ck, max(lens_q), max(lens_kv), lse)()
    torch.cuda.synchronize()
    ok, a, c = True, 0, 0
    outs = ([], [], [])
    for lq, lk in zip(lens_q, lens_kv):
        t = lambda x, s, n: x[s:s + n].transpose(0, 1)[None]
        keep = keep_matrix(v.rules, lq, lk)
        args = (t(q, a, lq), t(k, c, lk), t(val, c, lk), keep, v.head_dim_qk**-0.5)
        e, el = attention(*args, torch.float64)
        p, _ = attention(*args, dt)
        outs[0].append(e[0]); outs[1].append(p[0]); outs[2].append(el[0])
        a, c = a + lq, c + lk
    e, p, el = (torch.cat(x, 1) for x in outs)
    return report(f"{v.name()} varlen {lens_q}/{lens_kv}", o.double().transpose(0, 1), lse.double(), e, p, el)


DENSE = [
    Variant(lse=True), Variant(rules="causal", lse=True, stages=2), Variant(rules="causal", dtype="f16", lse=True, stages=3, shared_kv=1),
    Variant(rules="causal", head_dim_qk=64, tile_n=128, lse=True, block_order=1),
    Variant(rules="causal", head_dim_qk=64, q_in_registers=1, lse=True), Variant(rules="causal", head_dim_qk=64, tile_n=128, stages=2, q_in_registers=1, lse=True),
    Variant(rules="causal", dtype="f16", head_dim_qk=64, tile_n=96, stages=2, q_in_registers=1, lse=True), Variant(rules="causal", head_dim_qk=256, tile_m=64, q_in_registers=128, lse=True),
    Variant(rules="causal", head_dim_qk=256, warps=8, tile_n=32, stages=2, lse=True),
    Variant(rules="causal", dtype="f16", head_dim_qk=72, head_dim_v=40, lse=True, load_bytes=4, tile_m=64),
    Variant(rules="causal", head_dim_qk=8, head_dim_v=136, lse=True, load_bytes=2, tile_m=64),
    Variant(rules="full", head_dim_qk=192, head_dim_v=128, lse=True, load_bytes=8, tile_m=64, stages=2, shared_kv=1),
    Variant(rules="causal", head_dim_qk=16, head_dim_v=24, lse=True, tile_m=64, tile_n=32, stages=4, shared_kv=1, load_bytes=2),
]


def build(v):
    return v, compile_source(v.source()).cubin


def main():
    """With an argument N: every N-th case only, for compute-sanitizer."""
    torch.manual_seed(7)
    ok = True
    variants = (DENSE if len(sys.argv) < 2 else DENSE[::int(sys.argv[1])]) + [Variant(rules="causal", varlen=True, lse=True, stages=2), Variant(rules="causal", head_dim_qk=64, varlen=True, lse=True)]
    with ProcessPoolExecutor(12) as pool:
        built = list(pool.map(build, variants))
    for v, cubin in built:
        kernel = Kernel(cubin, v.threads, v.shared_bytes)
        if v.varlen:
            ok &= varlen_case(kernel, v, [0, 5, 130, 64, 1], [7, 0, 200, 64, 300], 4, 2)
            continue
        for shape in [(2, 4, 2, 1, 1), (1, 2, 2, 130, 257), (2, 6, 2, 257, 130), (1, 3, 1, 512, 512), (1, 2, 2, 5, 700), (1, 1, 1, 64, 0)]:
            ok &= dense_case(kernel, v, shape, alignment_offset=0 if v.load_bytes == 16 else v.load_bytes // 2)
        for scale in (-0.3, 0.0, 4.0):
            ok &= dense_case(kernel, v, (1, 2, 1, 300, 200), alignment_offset=0 if v.load_bytes == 16 else v.load_bytes // 2, scale=scale)
        ok &= value_poison_case(kernel, v, (1, 2, 2, 300, 300))
        ok &= dense_case(kernel, v, (1, 2, 1, 300, 300), poison="nan")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
