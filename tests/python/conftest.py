"""Fixtures of the Python tests. Everything runs on the CPU in float32; on CUDA, whose kernels take 16-bit types only, in
bfloat16 and float16, where there is a GPU."""

from __future__ import annotations

import os

import pytest
import torch

import saccade
from results_file import pytest_addoption, pytest_configure  # noqa: F401 (pytest finds its hooks here)

_CUDA = pytest.param("cuda", marks=[
    pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")])


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    """A kernel cache of the session's own: tests neither use nor fill the user's."""
    directory = tmp_path_factory.mktemp("saccade_cache")
    os.environ["SACCADE_CACHE_DIR"] = str(directory)  # for the processes that tests start
    saccade.configure(cache_directory=str(directory))
    return directory


@pytest.fixture(autouse=True)
def poisoned_memory():
    """PyTorch fills new tensors with NaN, so that an element which a kernel does not write is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["cpu", _CUDA])
def device(request):
    return request.param


@pytest.fixture
def dtype(device):
    """The type that most tests of a device use."""
    return torch.float32 if device == "cpu" else torch.bfloat16


class Inputs:
    """Makes random tensors on a device, from a seed that is printed; SACCADE_TEST_SEED sets it."""

    def __init__(self, device, dtype, seed):
        self.device, self.dtype = device, dtype
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape, dtype=None):
        return torch.randn(shape, generator=self._generator).to(dtype or self.dtype).to(self.device)

    def uniform_ints(self, most, *shape, dtype=torch.int32):
        """From 0 to most - 1."""
        return torch.randint(most, shape, generator=self._generator).to(dtype).to(self.device)

    def qkv(self, batch=2, heads=8, heads_kv=2, seqlen_q=65, seqlen_kv=None, head_dim=64, head_dim_v=None):
        """q, k, v in layout bhsd."""
        seqlen_kv = seqlen_q if seqlen_kv is None else seqlen_kv
        return (self.normal(batch, heads, seqlen_q, head_dim), self.normal(batch, heads_kv, seqlen_kv, head_dim),
                self.normal(batch, heads_kv, seqlen_kv, head_dim if head_dim_v is None else head_dim_v))


@pytest.fixture
def inputs(device, dtype):
    seed = int(os.environ.get("SACCADE_TEST_SEED") or int.from_bytes(os.urandom(3), "little"))
    print(f"seed {seed}")
    return Inputs(device, dtype, seed)


def compiled_kernels() -> int:
    """How many kernels this process has compiled."""
    return saccade.statistics()["compiled"]


@pytest.fixture
def compiles():
    """A function that counts the kernels compiled since the last call of it."""
    last = compiled_kernels()

    def count():
        nonlocal last
        before, last = last, compiled_kernels()
        return last - before

    return count
