"""What is timed: one cell of a grid, and its tensors."""
from __future__ import annotations

import dataclasses
import itertools
from typing import Callable, Iterator

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
IDENTITY = ("op", "dtype", "head_dim", "head_dim_v", "causal", "rule", "batch", "seqlen", "heads", "heads_kv", "layout", "mode")


@dataclasses.dataclass(frozen=True)
class Case:
    """One cell: keys as many as queries. rule: "full", "causal" or one of attention_rules.NAMES. heads_kv, head_dim_v: None where
    they are as heads and head_dim. layout: the order of the tensors in memory ("bhsd" or "bshd"); every implementation sees them as
    [batch, heads, seqlen, head_dim]."""
    op: str
    dtype: str
    head_dim: int
    causal: bool
    batch: int
    seqlen: int
    heads: int
    rule: str
    layout: str = "bhsd"
    heads_kv: int | None = None
    head_dim_v: int | None = None

    def __str__(self):
        columns = f"d{self.head_dim}" + (f"/{self.head_dim_v}" if self.head_dim_v else "")
        heads = f"{self.heads}" + (f"/{self.heads_kv}" if self.heads_kv else "")
        return f"{self.op} {self.dtype} {columns} {self.rule} {self.batch} x {self.seqlen} x {heads}"


@dataclasses.dataclass(frozen=True)
class Grid:
    """The product of its lists. tokens: batch * seqlen; width: heads * head_dim, both the same for all cells."""
    op: str
    dtypes: tuple[str, ...]
    head_dims: tuple[int, ...]
    rules: tuple[str, ...]
    lengths: tuple[int, ...]
    tokens: int
    width: int
    layout: str = "bhsd"

    def cases(self) -> Iterator[Case]:
        for dtype, head_dim, rule, length in itertools.product(self.dtypes, self.head_dims, self.rules, self.lengths):
            yield Case(self.op, dtype, head_dim, rule != "full", max(1, self.tokens // length), length, max(1, self.width // head_dim),
                       rule, self.layout)


def filled(case: Case, name: str, fill: Callable[[list[int]], torch.Tensor]) -> torch.Tensor:
    """[batch, heads, seqlen, head_dim] of tensor "q", "k", "v" or "o", in memory in the case's layout. fill(sizes): the tensor in
    the order of memory."""
    sizes = {"b": case.batch, "s": case.seqlen, "h": case.heads if name in "qo" else case.heads_kv or case.heads,
             "d": case.head_dim if name in "qk" else case.head_dim_v or case.head_dim}
    tensor = fill([sizes[axis] for axis in case.layout])
    return tensor if case.layout == "bhsd" else tensor.transpose(1, 2)


def random_tensor(case: Case, device: str, generator: torch.Generator, name: str) -> torch.Tensor:
    """Standard normal."""
    return filled(case, name, lambda sizes: torch.randn(sizes, device=device, generator=generator).to(DTYPES[case.dtype]))


def key_of(row: dict) -> tuple:
    """What makes a row of a results file the same cell as another file's."""
    return tuple(row.get(field) for field in IDENTITY)
