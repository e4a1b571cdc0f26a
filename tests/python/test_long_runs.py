"""What only a GPU can show, and only in numbers: every number of queries, a thousand runs, tensors of more than 2^31 elements."""

from __future__ import annotations

import pytest
import torch

import saccade

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")]


def make(generator, *shape, dtype=torch.bfloat16):
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)


@pytest.fixture
def generator():
    return torch.Generator("cuda").manual_seed(11)


def assert_right(o, q, k, v, kept=None):
    """`o` against attention of [B, H, S, D] in float64: each element within one rounding of each weight and one of the element, to
    the inputs' type, and a tenth more for all that is done in float32. The heads of K and V are repeated, the mask broadcasts."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    s = q @ k.mT / q.shape[-1] ** 0.5
    if kept is not None:
        s = s.masked_fill(~kept, float("-inf"))
    weights = torch.softmax(s, -1)
    exact = weights @ v
    rounding = torch.finfo(o.dtype).eps / 2
    bound = 1.1 * rounding * (weights @ v.abs() + exact.abs()) + 1e-6
    over = (o.double() - exact).abs() / bound
    assert over.max().item() <= 1, f"{over.max().item()} of the bound at {over.argmax().item()}"


@pytest.mark.parametrize("head_dim, dtype", [(64, torch.float16), (128, torch.bfloat16), (256, torch.bfloat16)])
def test_every_number_of_queries_from_1_to_300(generator, head_dim, dtype):
    families = set()
    for length in range(1, 301):
        keys = 2 * length + 7
        q = make(generator, 1, 4, length, head_dim, dtype=dtype)
        k, v = (make(generator, 1, 2, keys, head_dim, dtype=dtype) for _ in range(2))
        kept = torch.ones(length, keys, dtype=torch.bool, device="cuda").tril(keys - length)
        plan = saccade.prepare(q, k, v, causal="bottom_right")
        families.add(plan.report["schedule"]["family"])
        assert_right(plan.run(q, k, v), q, k, v, kept)
    if torch.cuda.get_device_capability() == (9, 0):
        assert families == {"cuda.fwd.sm80", "cuda.fwd.sm90"}  # at most 16 queries are the former's


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_a_thousand_runs_at_odd_sizes_give_the_same_bits(generator, head_dim):
    sizes = [(3, 17, 1537, 1999), (1, 1, 4095, 4097), (5, 7, 333, 65), (2, 3, 129, 2049), (1, 29, 577, 577)]
    calls = []
    for batch, heads, queries, keys in sizes:
        q = make(generator, batch, heads, queries, head_dim)
        k, v = (make(generator, batch, heads, keys, head_dim) for _ in range(2))
        ids = (torch.arange(max(queries, keys), device="cuda", dtype=torch.int32) * 7) // 1000
        for rule in ({}, {"causal": "bottom_right"}, {"mask": saccade.window(200, 30, align="bottom_right")}, {"mask": saccade.document(ids)}):
            plan = saccade.prepare(q, k, v, **rule)
            calls.append((plan, q, k, v, plan.run(q, k, v)))
    for repeat in range(1000 // len(calls)):
        outputs = [plan.run(q, k, v) for plan, q, k, v, _ in calls]
        for output, call in zip(outputs, calls):
            assert torch.equal(output.view(torch.int16), call[-1].view(torch.int16)), repeat


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_rows_without_keys_among_short_ones(generator, head_dim):
    """Row tiles of no key or one tile of keys, many for each block: what walks over them is as far ahead as it can be."""
    batch, heads, queries, keys = 96, 32, 200, 48
    q, k, v = (make(generator, batch, heads, rows, head_dim) for rows in (queries, keys, keys))
    lengths = (torch.arange(batch, device="cuda", dtype=torch.int32) * 5) % 4 * 16  # 0, 16, 32, 48
    kept = (torch.arange(keys, device="cuda") < lengths[:, None])[:, None, None]
    plan = saccade.prepare(q, k, v, mask=lambda b, h, q_idx, kv_idx: kv_idx < lengths[b])
    first = plan.run(q, k, v)
    assert_right(first[lengths > 0], q[lengths > 0], k[lengths > 0], v[lengths > 0], kept[lengths > 0])
    assert not first[lengths == 0].any()
    for _ in range(50):
        assert torch.equal(plan.run(q, k, v), first)


class TestTensorsOfMoreThan2To31Elements:
    """Each needs up to 9 GB."""

    def test_queries_and_outputs(self, generator):
        rows, heads, keys = 131072 + 77, 64, 256
        q = torch.empty(2, heads, rows, 128, dtype=torch.bfloat16, device="cuda").normal_(generator=generator)
        assert q.numel() > 2**31
        k, v = (make(generator, 2, heads, keys, 128) for _ in range(2))
        o = saccade.attention(q, k, v)
        for b, h, first in ((0, 0, 0), (0, 63, rows - 300), (1, 0, 65000), (1, 63, rows - 300)):
            part = (slice(b, b + 1), slice(h, h + 1))
            assert_right(o[part][:, :, first:first + 300], q[part][:, :, first:first + 300], k[part], v[part])

    def test_keys_and_values(self, generator):
        keys, heads = 1048576 + 333, 16
        k, v = (torch.empty(1, heads, keys, 128, dtype=torch.bfloat16, device="cuda").normal_(generator=generator) for _ in range(2))
        assert k.numel() > 2**31
        q = make(generator, 1, heads, 130, 128)
        o = saccade.attention(q, k, v, mask=lambda b, h, q_idx, kv_idx: kv_idx > q_idx + (keys - 130) - 700)
        kept = torch.arange(keys - 900, keys, device="cuda")[None] > torch.arange(130, device="cuda")[:, None] + (keys - 130) - 700
        for h in (0, heads - 1):
            part = slice(h, h + 1)
            assert_right(o[:, part], q[:, part], k[:, part, keys - 900:], v[:, part, keys - 900:], kept)

    def test_rows_that_lie_far_apart(self, generator):
        rows, far = 700, 4 * 1024 * 1024  # 700 rows of 2^22 elements
        memory = torch.empty(rows * far, dtype=torch.bfloat16, device="cuda")
        q, k, v = (memory.as_strided((1, 1, rows, 64), (rows * far, rows * far, far, 1), i * 1024) for i in range(3))
        for x in (q, k, v):
            x.copy_(make(generator, 1, 1, rows, 64))
        assert_right(saccade.attention(q, k, v), q, k, v)
