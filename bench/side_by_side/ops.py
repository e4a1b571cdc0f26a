"""Operations that are timed (`Op`): their tensors, who implements them, what they compute and how many FLOPs that is."""
from __future__ import annotations

import abc
import dataclasses
import functools
import math
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import saccade

from . import attention_rules
from .cases import Case, filled, random_tensor
from .timing import Implementation

SACCADE = "saccade"
BACK_ENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
             "math": SDPBackend.MATH}
# "torch" is scaled_dot_product_attention with the back end that PyTorch chooses.
PEERS = {"cuda": ("cudnn", "flash", "efficient"), "cpu": ("torch", "math")}
ALL_PEERS = ("cudnn", "flash", "efficient", "torch", "math", "flex")
# Largest relative error, in the norm of a row, of a right result. Rounding P and O to the storage type gives 0.3% in bf16.
TOLERANCES = {"f32": 2e-5, "f16": 2e-3, "bf16": 1e-2}


class Op(abc.ABC):
    """One kind of work of which a Case is an instance. The program that times it knows nothing else of it."""
    name: str

    @abc.abstractmethod
    def inputs(self, case: Case, device: str) -> Any:
        """The tensors, the same for every implementation."""

    @abc.abstractmethod
    def build(self, name: str, case: Case, inputs: Any, tuning: str) -> tuple[Implementation, dict]:
        """An implementation, ready to be called, and what is to be recorded of it. Raises where it cannot do the case."""

    @abc.abstractmethod
    def error(self, case: Case, inputs: Any, output: Any) -> float:
        """The largest relative error of sampled rows against float64; NaN where there is one."""

    @abc.abstractmethod
    def flop(self, case: Case, inputs: Any) -> int:
        """Floating-point operations that count."""


@dataclasses.dataclass(frozen=True)
class ForwardInputs:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    rule: attention_rules.Rule


class Forward(Op):
    """The forward pass, LSE not asked for."""
    name = "fwd"

    def inputs(self, case, device):
        generator = torch.Generator(device).manual_seed(1)
        tensors = [random_tensor(case, device, generator, name) for name in "qkv"]
        return ForwardInputs(*tensors, attention_rules.make(case.rule, case.heads, case.seqlen, device))

    def build(self, name, case, inputs, tuning):
        if name == SACCADE:
            return self._saccade(case, inputs, tuning)
        if name == "flex":
            return self._flex(case, inputs), {}
        return self._torch(name, case, inputs), {}

    @staticmethod
    def _saccade(case, inputs, tuning):
        q, k, v = inputs.q, inputs.k, inputs.v
        out = filled(case, "o", lambda sizes: q.new_full(sizes, math.nan))
        plan = saccade.prepare(q, k, v, out=out, tuning=tuning, **inputs.rule.arguments)
        report = plan.report
        return (Implementation(SACCADE, functools.partial(plan.run, q, k, v, out=out)),
                {"schedule": report["schedule"], "schedule_source": report["schedule_source"]})

    @staticmethod
    def _torch(name, case, inputs):
        if case.rule not in ("full", "causal"):
            raise NotImplementedError(f"scaled_dot_product_attention has no {case.rule}")
        call = functools.partial(F.scaled_dot_product_attention, inputs.q, inputs.k, inputs.v, is_causal=case.causal,
                                 enable_gqa=case.heads_kv is not None)
        if name == "torch":
            return Implementation(name, call)
        return Implementation(name, call, lambda: sdpa_kernel(BACK_ENDS[name]))

    @staticmethod
    def _flex(case, inputs):
        torch._dynamo.reset()  # each cell is compiled for its own sizes, as the first one is
        rule = inputs.rule
        block_mask = None
        if rule.mask_mod is not None:
            block_mask = create_block_mask(rule.mask_mod, None, None, case.seqlen, case.seqlen, device=inputs.q.device)
        compiled = torch.compile(flex_attention, dynamic=False)
        return Implementation("flex", functools.partial(compiled, inputs.q, inputs.k, inputs.v, score_mod=rule.score_mod,
                                                        block_mask=block_mask, enable_gqa=case.heads_kv is not None))

    def error(self, case, inputs, output):
        """Of 16 rows of the first and of the last head."""
        worst = 0.0
        device = output.device
        rows = torch.linspace(0, case.seqlen - 1, min(16, case.seqlen), device=device).long()
        keys = torch.arange(case.seqlen, device=device)[None]
        for b, h in ((0, 0), (case.batch - 1, case.heads - 1)):
            head_kv = h * inputs.k.shape[1] // case.heads
            scores = inputs.q[b, h, rows].double() @ inputs.k[b, head_kv].double().T / math.sqrt(case.head_dim)
            if inputs.rule.score_mod is not None:
                scores = inputs.rule.score_mod(scores, b, h, rows[:, None], keys)
            if inputs.rule.mask_mod is not None:
                scores = scores.masked_fill(~inputs.rule.mask_mod(b, h, rows[:, None], keys), -math.inf)
            exact = scores.softmax(-1) @ inputs.v[b, head_kv].double()
            errors = (output[b, h, rows].double() - exact).norm(dim=-1) / exact.norm(dim=-1)
            if not bool(torch.isfinite(errors).all()):
                return math.nan
            worst = max(worst, errors.max().item())
        return worst

    def flop(self, case, inputs):
        """2 * batch * heads * seqlen^2 * (head_dim + head_dim_v); half of it for causal (as FlashAttention counts); the pairs that
        the mask keeps for other rules."""
        pairs = case.seqlen * case.seqlen * (0.5 if case.rule == "causal" else 1)
        if case.rule not in ("full", "causal"):
            pairs = inputs.rule.kept_pairs(case.seqlen, str(inputs.q.device))
        return int(2 * case.batch * case.heads * pairs * (case.head_dim + (case.head_dim_v or case.head_dim)))


OPS: dict[str, Op] = {Forward.name: Forward()}


@dataclasses.dataclass
class Prepared:
    """The implementations of a case whose results are right; why others are missing; an error that ends the case."""
    implementations: list[Implementation] = dataclasses.field(default_factory=list)
    errors: dict[str, float] = dataclasses.field(default_factory=dict)
    declined: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    failure: str | None = None


def prepare(op: Op, case: Case, inputs: Any, names: list[str], tuning: str) -> Prepared:
    """Builds each implementation, runs it once and compares with float64. A peer that cannot do the case is left out; Saccade
    that cannot, or a wrong result of anybody, is a failure of the case."""
    prepared = Prepared()
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch warns why a back end declines
                implementation, notes = op.build(name, case, inputs, tuning)
                with implementation.context():
                    output = implementation.call()
                prepared.errors[name] = op.error(case, inputs, output)
        except (RuntimeError, NotImplementedError, ValueError, saccade.Error) as exception:
            reason = f"{type(exception).__name__}: {(str(exception).strip() or 'no message').splitlines()[0]}"
            if name == SACCADE:
                prepared.failure = f"{name}: {reason}"
                return prepared
            prepared.declined[name] = reason
            continue
        if not prepared.errors[name] <= TOLERANCES[case.dtype]:
            prepared.failure = (f"{name} is wrong: relative error {prepared.errors[name]:.2e}; at most {TOLERANCES[case.dtype]:.0e} "
                                f"is right in {case.dtype}")
            return prepared
        prepared.implementations.append(implementation)
        prepared.notes |= notes
    return prepared
