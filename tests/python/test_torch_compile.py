"""saccade.torch under torch.compile and torch.export: no graph break, no compilation per length, the same results."""

from __future__ import annotations

import pytest
import torch

import saccade
import saccade.torch as saccade_torch
from dense import check_attention

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Counting:
    """A backend that runs graphs as they are, and counts how often it was asked to compile one."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, example_inputs):
        self.graphs.append(graph)
        return graph.forward

    def operators(self):
        return [node.target for graph in self.graphs for node in graph.graph.nodes if "saccade" in str(node.target)]


def causal(b, h, q_idx, kv_idx):
    return kv_idx <= q_idx


def one_graph(function, *arguments):
    """What the compiled function gives, having asserted that it is one graph with Saccade's operator in it, and that the
    function gives the same when it is not compiled."""
    backend = Counting()
    got = torch.compile(function, backend=backend, fullgraph=True)(*arguments)
    assert len(backend.graphs) == 1 and backend.operators()
    plain_results = function(*arguments)
    for mine, plain in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, plain_results))):
        assert torch.equal(mine, plain) and mine.stride() == plain.stride()
    return got


class TestOneGraph:
    @pytest.mark.parametrize("keywords, kept", [
        ({}, None), ({"causal": True}, causal), ({"causal": "top_left"}, causal), ({"causal": "bottom_right"}, causal),
        ({"window": (9, 3)}, lambda b, h, i, j: (i - j <= 9) & (j - i <= 3)),
        ({"window": (9, -1), "causal": True}, lambda b, h, i, j: (i - j <= 9) & (j <= i)),
        ({"mask": "kv_idx % 3 == 0 || kv_idx == q_idx"}, lambda b, h, i, j: (j % 3 == 0) | (j == i)),
        ({"layout": "bshd", "causal": True}, causal)], ids=lambda value: str(value) if isinstance(value, dict) else "")
    def test_of_text_causal_and_window(self, inputs, keywords, kept):
        q, k, v = inputs.qkv()
        bshd = "layout" in keywords
        if bshd:
            q, k, v = (t.transpose(1, 2).contiguous() for t in (q, k, v))
        got = one_graph(lambda q, k, v: saccade_torch.attention(q, k, v, return_lse=True, scale=0.2, **keywords), q, k, v)
        if bshd:
            q, k, v, got = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), (got[0].transpose(1, 2), got[1])
        check_attention(got, q, k, v, kept, scale=0.2)

    def test_of_a_rule_made_outside(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        ids = inputs.uniform_ints(3, 2, 65)
        slopes = torch.linspace(0.1, 0.4, 4, device=q.device)
        mask = saccade.document(ids) & saccade.window(20, -1)
        score = saccade.alibi(slopes) >> saccade.softcap(8.0)
        traced = saccade.mask(lambda b, h, q_idx, kv_idx: (ids[b, q_idx] == ids[b, kv_idx]) & (q_idx - kv_idx <= 20))
        for rule in (mask, traced):
            got = one_graph(lambda q, k, v: saccade_torch.attention(q, k, v, mask=rule, score=score), q, k, v)
            check_attention(got, q, k, v, lambda b, h, i, j: (ids[b, i] == ids[b, j]) & (i - j <= 20),
                            lambda s, b, h, i, j: 8.0 * torch.tanh((s + slopes[h] * (j - i)) / 8.0))

    def test_of_a_rule_that_a_module_holds(self, inputs):
        class Layer(torch.nn.Module):
            def __init__(self, rule):
                super().__init__()
                self.rule = rule

            def forward(self, q, k, v):
                return saccade_torch.attention(q * 2, k, v, mask=self.rule).float() + 1

        q, k, v = inputs.qkv()
        ids = inputs.uniform_ints(3, 2, 65)
        layer = Layer(saccade.document(ids))
        backend = Counting()
        compiled = torch.compile(layer, backend=backend, fullgraph=True)
        assert torch.equal(compiled(q, k, v), layer(q, k, v))
        ids.copy_(inputs.uniform_ints(4, 2, 65))  # the tensor is read when the kernel runs
        assert torch.equal(compiled(q, k, v), layer(q, k, v))
        assert len(backend.graphs) == 1

    def test_another_rule_is_seen(self, inputs):
        """A compiled function must not keep the rule of its first call."""
        q, k, v = inputs.qkv()
        backend = Counting()
        compiled = torch.compile(lambda q, k, v, rule: saccade_torch.attention(q, k, v, mask=rule), backend=backend,
                                 fullgraph=True)
        for rule in (saccade.window(5, 0), saccade.window(9, 0), saccade.causal(), saccade.document(inputs.uniform_ints(3, 65)),
                     saccade.document(inputs.uniform_ints(3, 65))):
            assert torch.equal(compiled(q, k, v, rule), saccade_torch.attention(q, k, v, mask=rule))

    def test_of_rules_as_arguments_by_their_values(self, inputs):
        """Windows of other widths are other numbers, not other kernels."""
        q, k, v = inputs.qkv()
        backend = Counting()
        compiled = torch.compile(lambda q, k, v, left: saccade_torch.attention(q, k, v, window=(left, 0)), backend=backend,
                                 fullgraph=True)
        for left in (3, 4, 5, 17, 64):
            got = compiled(q, k, v, left)
            check_attention(got, q, k, v, lambda b, h, i, j: (i - j <= left) & (j <= i))
        assert len(backend.graphs) <= 2

    @pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
    def test_of_scaled_dot_product_attention(self, inputs, kind):
        q, k, v = inputs.qkv(heads=4, heads_kv=2)
        table = inputs.normal(2, 1, 65, 65)
        attn_mask = {"bool": table > 0, "float": table}.get(kind)

        def function(q, k, v, attn_mask):
            return saccade_torch.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=kind == "causal", enable_gqa=True)

        got = one_graph(function, q, k, v, attn_mask)
        check_attention(got, q, k, v, {"causal": causal, "bool": attn_mask}.get(kind),
                        (lambda s, b, h, i, j: s + table[b, 0, i, j]) if kind == "float" else None)

    def test_of_five_dimensions(self, inputs):
        one_graph(lambda q, attn_mask: saccade_torch.scaled_dot_product_attention(q, q, q, attn_mask),
                  inputs.normal(2, 3, 4, 9, 32), inputs.normal(3, 1, 9, 9) > 0)

    def test_under_autocast(self, inputs, device):
        q, k, v = (t.float() for t in inputs.qkv())
        with torch.autocast(device, dtype=torch.bfloat16):
            got = one_graph(lambda q, k, v: saccade_torch.attention(q, k, v, causal=True), q, k, v)
        assert got.dtype == torch.bfloat16


class TestLengths:
    def test_fifty_lengths_are_at_most_two_compilations(self, inputs):
        backend = Counting()
        compiled = torch.compile(lambda q, k, v: saccade_torch.attention(q, k, v, causal=True, window=(30, -1), return_lse=True),
                                 backend=backend, fullgraph=True)
        for length in range(2, 152, 3):
            q, k, v = inputs.qkv(batch=1, heads=4, seqlen_q=length, head_dim=32)
            got = compiled(q, k, v)
            if length % 5 == 0:
                check_attention(got, q, k, v, lambda b, h, i, j: (i - j <= 30) & (j <= i))
        assert len(backend.graphs) <= 2

    def test_fifty_lengths_of_scaled_dot_product_attention_with_a_mask(self, inputs):
        backend = Counting()
        compiled = torch.compile(saccade_torch.scaled_dot_product_attention, backend=backend, fullgraph=True)
        for length in range(2, 152, 3):
            q, k, v = inputs.qkv(batch=1, heads=4, heads_kv=4, seqlen_q=length, seqlen_kv=length + 7, head_dim=32)
            attn_mask = inputs.normal(length, length + 7) > 0
            got = compiled(q, k, v, attn_mask)
            if length % 5 == 0:
                check_attention(got, q, k, v, attn_mask)
        assert len(backend.graphs) <= 2

    def test_a_growing_cache_is_at_most_two_compilations(self, inputs):
        """One query, and keys that become more."""
        backend = Counting()
        compiled = torch.compile(lambda q, k, v: saccade_torch.attention(q, k, v, causal="bottom_right"), backend=backend,
                                 fullgraph=True)
        q, k, v = inputs.qkv(batch=2, heads=4, seqlen_q=1, seqlen_kv=80, head_dim=32)
        for length in range(10, 60):
            got = compiled(q, k[:, :, :length], v[:, :, :length])
            if length % 10 == 0:
                check_attention(got, q, k[:, :, :length], v[:, :, :length])
        assert len(backend.graphs) <= 2

    def test_batches_and_lengths_change_together(self, inputs):
        backend = Counting()
        compiled = torch.compile(lambda q, k, v: saccade_torch.attention(q, k, v), backend=backend, fullgraph=True, dynamic=True)
        # All sizes of the first call differ: PyTorch takes equal ones to be equal always.
        for batch, length in ((3, 10), (5, 20), (4, 30), (2, 17)):
            q, k, v = inputs.qkv(batch=batch, heads=8, seqlen_q=length, seqlen_kv=2 * length, head_dim=32)
            check_attention(compiled(q, k, v), q, k, v)
        assert len(backend.graphs) == 1

    def test_packed_sequences_of_changing_totals(self, inputs):
        backend = Counting()

        def function(q, k, v, cu_seqlens, longest):
            return saccade_torch.varlen_attention(q, k, v, cu_seqlens, max_seqlen_q=longest, causal=True, return_lse=True)

        compiled = torch.compile(function, backend=backend, fullgraph=True)
        for step in range(12):
            lengths = [3 + step, 0, 20 + 2 * step, 7]
            ends = [sum(lengths[:i]) for i in range(5)]
            cu_seqlens = torch.tensor(ends, dtype=torch.int32, device=inputs.device)
            q, k, v = inputs.normal(ends[-1], 4, 32), inputs.normal(ends[-1], 2, 32), inputs.normal(ends[-1], 2, 32)
            out, lse = compiled(q, k, v, cu_seqlens, max(lengths))
            for start, end in zip(ends, ends[1:]):
                part = [t[start:end].transpose(0, 1).unsqueeze(0) for t in (q, k, v)]
                check_attention((out[start:end].transpose(0, 1).unsqueeze(0), lse[None, :, start:end]), *part, causal)
        assert len(backend.graphs) <= 2


class TestWhatCannotBeCompiled:
    @pytest.mark.parametrize("argument", ["mask", "score"])
    def test_a_function_as_a_rule_says_how(self, inputs, argument):
        q, k, v = inputs.qkv()
        functions = {"mask": lambda b, h, q_idx, kv_idx: kv_idx <= q_idx, "score": lambda score, b, h, q_idx, kv_idx: score * 2}
        compiled = torch.compile(lambda q, k, v: saccade_torch.attention(q, k, v, **{argument: functions[argument]}),
                                 backend="eager", fullgraph=True)
        with pytest.raises(Exception, match="inside torch.compile a rule must exist before: make it outside"):
            compiled(q, k, v)

    def test_an_input_that_requires_grad_raises(self, inputs):
        q, k, v = inputs.qkv()
        q.requires_grad_()
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            with pytest.raises(Exception, match="requires grad"):
                torch.compile(lambda q, k, v: saccade_torch.attention(q, k, v), backend=backend)(q, k, v)

    def test_wrong_arguments_raise_saccades_error(self, inputs):
        q, k, v = inputs.qkv()
        with pytest.raises(Exception, match="dropout"):
            torch.compile(lambda q, k, v: saccade_torch.scaled_dot_product_attention(q, k, v, None, 0.1), backend="eager",
                          fullgraph=True)(q, k, v)
        torch._dynamo.reset()
        with pytest.raises(saccade.InvalidArgument, match="head"):
            torch.compile(lambda q, k, v: saccade_torch.attention(q, k[:, :, :, :32], v), backend="eager",
                          fullgraph=True)(q, k, v)


class Layer(torch.nn.Module):
    """Attention between two projections."""

    def __init__(self, rule=None):
        super().__init__()
        self.project_in, self.project_out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)
        self.rule = rule

    def forward(self, x):
        q, k, v = self.project_in(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        out = saccade_torch.attention(q, k, v, mask=self.rule, causal=True)
        return self.project_out(out.transpose(1, 2).flatten(2))


@pytest.fixture
def layer(inputs):
    torch.manual_seed(0)
    return Layer(saccade.window(9, -1)).to(inputs.device, inputs.dtype).requires_grad_(False)


class TestExport:
    @pytest.mark.parametrize("strict", [False, True])
    def test_a_module_with_a_dynamic_length(self, inputs, layer, strict):
        x = inputs.normal(2, 30, 64)
        length = torch.export.Dim("length", min=2, max=512)
        program = torch.export.export(layer, (x,), dynamic_shapes=({1: length},), strict=strict)
        assert any("saccade" in str(node.target) for node in program.graph.nodes)
        for length in (2, 30, 77):
            x = inputs.normal(2, length, 64)
            assert torch.equal(program.module()(x), layer(x))

    def test_a_program_can_be_saved_and_loaded(self, inputs, layer, tmp_path):
        x = inputs.normal(2, 30, 64)
        program = torch.export.export(layer, (x,))
        torch.export.save(program, tmp_path / "layer.pt2")
        assert torch.equal(torch.export.load(tmp_path / "layer.pt2").module()(x), layer(x))

    def test_a_table_of_a_rule_becomes_a_constant(self, inputs, tmp_path):
        ids = inputs.uniform_ints(3, 2, 30)
        layer = Layer(saccade.document(ids)).to(inputs.device, inputs.dtype).requires_grad_(False)
        x = inputs.normal(2, 30, 64)
        program = torch.export.export(layer, (x,))
        torch.export.save(program, tmp_path / "layer.pt2")
        assert torch.equal(torch.export.load(tmp_path / "layer.pt2").module()(x), layer(x))

    def test_a_function_as_a_rule_says_how(self, inputs):
        layer = Layer(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx).to(inputs.device, inputs.dtype).requires_grad_(False)
        with pytest.raises(Exception, match="saccade.mask\\("):
            torch.export.export(layer, (inputs.normal(2, 30, 64),), strict=True)


def test_aot_autograd_keeps_results_and_strides(inputs, layer):
    """aot_eager runs the fake kernels, and asserts that strides are what they said."""
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for length in (30, 41, 52):
        x = inputs.normal(2, length, 64)
        got, plain = compiled(x), layer(x)
        assert torch.equal(got, plain) and got.stride() == plain.stride()


def test_inductor(inputs, layer):
    """The one test with generated C++ or Triton, which are slow to compile."""
    compiled = torch.compile(layer, fullgraph=True)
    for length in (30, 41):
        x = inputs.normal(2, length, 64)
        tolerance = 1e-5 if x.dtype == torch.float32 else 2e-2
        torch.testing.assert_close(compiled(x), layer(x), rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")
def test_cuda_graphs_of_torch_compile():
    """mode="reduce-overhead" captures the call; new inputs are copied in and replayed."""
    from conftest import Inputs

    inputs = Inputs("cuda", torch.bfloat16, 7)
    compiled = torch.compile(lambda q, k, v: saccade_torch.attention(q, k, v, causal=True) * 1, mode="reduce-overhead",
                             fullgraph=True)
    for _ in range(5):
        q, k, v = inputs.qkv(seqlen_q=200)
        torch.compiler.cudagraph_mark_step_begin()
        check_attention(compiled(q, k, v).clone(), q, k, v, causal)
