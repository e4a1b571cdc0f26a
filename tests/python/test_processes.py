"""Threads, forks, the end of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

import saccade
from dense import check_attention

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def run_python(source, timeout=60):
    """(exit status, stdout, stderr) of a process of its own. One that hangs fails the test."""
    done = subprocess.run([sys.executable, "-c", PREAMBLE + source], capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


PREAMBLE = """
import os, sys, numpy, saccade
generator = numpy.random.default_rng(3)
q, k, v = (generator.standard_normal((1, 2, 40, 32), numpy.float32) for _ in range(3))
def right(out):
    scores = numpy.einsum("bhqd,bhkd->bhqk", q.astype(float), k) / numpy.sqrt(32)
    scores[..., numpy.triu_indices(40, 1)[0], numpy.triu_indices(40, 1)[1]] = -numpy.inf
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return numpy.allclose(out, weights / weights.sum(-1, keepdims=True) @ v, atol=1e-5)
causal = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
"""


# Threads


def in_threads(count, work):
    """Runs work(i) in `count` threads that start together; raises what the first of them raised."""
    errors, barrier = [], threading.Barrier(count)

    def body(i):
        try:
            barrier.wait()
            work(i)
        except BaseException as error:  # noqa: BLE001  handed to the test
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


def test_sixteen_threads_with_rules_of_their_own(inputs, compiles):
    """Four kernels, each wanted by four threads at once with numbers of their own, of one binary order: they may share a schedule."""
    q, k, v = inputs.qkv(seqlen_q=65, head_dim=56)
    ids = [inputs.uniform_ints(2 + i, 65) for i in range(16)]

    def rule_of(i):
        number = 16 + i
        return [lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < number),
                lambda b, h, q_idx, kv_idx: ids[i][q_idx] == ids[i][kv_idx],
                lambda b, h, q_idx, kv_idx: (kv_idx < number) | (q_idx >= kv_idx),
                lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % number == 0][i % 4]

    results = [None] * 16

    def work(i):
        for _ in range(3):
            results[i] = saccade.attention(q, k, v, mask=rule_of(i), return_lse=True)

    in_threads(16, work)
    assert compiles() == 4
    for i, result in enumerate(results):
        check_attention(result, q, k, v, rule_of(i))


def test_threads_share_a_plan(inputs):
    q, k, v = inputs.qkv(seqlen_q=65)
    plan = saccade.prepare(q, k, v, causal=True)
    expected = plan.run(q, k, v)

    def work(i):
        for _ in range(20):
            assert torch.equal(plan.run(q, k, v), expected)

    in_threads(16, work)


def test_threads_change_the_configuration_while_others_call(inputs, cache_directory):
    q, k, v = inputs.qkv(seqlen_q=33)
    expected = saccade.attention(q, k, v, causal=True)

    def work(i):
        for _ in range(5):
            if i == 0:
                saccade.configure(cache_directory=str(cache_directory))
            assert torch.equal(saccade.attention(q, k, v, causal=True), expected)

    in_threads(8, work)


def test_threads_may_trace_different_values_of_one_rule(inputs):
    """A branch on a captured number makes a trace for each value."""
    q, k, v = inputs.qkv(seqlen_q=33)

    def rule_of(size):
        return lambda b, h, q_idx, kv_idx: (q_idx - kv_idx < size) if size % 2 else (kv_idx < size)

    results = {}

    def work(i):
        results[i] = saccade.attention(q, k, v, mask=rule_of(i))

    in_threads(16, work)
    for i, result in results.items():
        check_attention(result, q, k, v, rule_of(i))


# Forks


FORK = """
import multiprocessing
def child(queue):
    queue.put((bool(right(saccade.attention(q, k, v, mask=causal))), bool(right(saccade.attention(q, k, v, causal=True)))))
if BEFORE:
    assert right(saccade.attention(q, k, v, mask=causal))
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get(timeout=40))
process.join(20)
print(process.exitcode)
print(right(saccade.attention(q, k, v, mask=causal)))
"""


@needs_fork
@pytest.mark.parametrize("before", [True, False], ids=["after use", "before use"])
def test_a_forked_child_gets_the_right_result(before):
    status, out, err = run_python(f"BEFORE = {before}\n" + FORK)
    assert status == 0, err
    assert out.splitlines() == ["(True, True)", "0", "True"], out + err


@needs_fork
def test_a_child_forked_while_threads_call_does_not_hang():
    status, out, err = run_python("""
import threading
stop = threading.Event()
def busy(i):
    size = 0
    while not stop.is_set():
        size += 1
        saccade.attention(q, k, v, mask=lambda b, h, q_idx, kv_idx: q_idx - kv_idx < size + i)
assert right(saccade.attention(q, k, v, causal=True))
threads = [threading.Thread(target=busy, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        ok = right(saccade.attention(q, k, v, causal=True)) and right(saccade.attention(q, k, v, mask=causal))
        os._exit(0 if ok else 7)
    statuses.append(os.waitpid(pid, 0)[1])
stop.set()
for thread in threads:
    thread.join()
print(statuses)
""")
    assert status == 0, err
    assert out.strip() == "[0, 0, 0, 0]", out + err


# The end of the interpreter


RIGHT_OR_REFUSED = """
def last(when):
    try:
        print(when, right(saccade.attention(q, k, v, mask=causal)))
    except saccade.Error as error:
        print(when, "refused", type(error).__name__, bool(str(error)))
"""


@pytest.mark.parametrize("used", [True, False], ids=["used before", "never used"])
def test_a_call_at_exit_is_right_or_refused(used):
    """Handlers registered before saccade's own run after it."""
    source = RIGHT_OR_REFUSED + "import atexit\natexit.register(last, 'at exit')\n"
    if used:
        source += "assert right(saccade.attention(q, k, v, mask=causal))\n"
    status, out, err = run_python(source)
    assert status == 0, err
    assert out.strip() in ("at exit True", "at exit refused Cancelled True"), out + err


def test_a_call_after_the_library_has_shut_down_is_refused_or_right():
    done = subprocess.run([sys.executable, "-c", """
import atexit
atexit.register(lambda: last("after"))  # before saccade is imported, so it runs after saccade's own
""" + PREAMBLE + RIGHT_OR_REFUSED + "assert right(saccade.attention(q, k, v, mask=causal))\n"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("after True", "after refused Cancelled True"), done.stdout + done.stderr


def test_a_call_from_a_destructor_at_the_end_does_not_crash():
    status, _, err = run_python("""
class Last:
    def __del__(self, attention=saccade.attention, q=q, k=k, v=v):
        try:
            attention(q, k, v, causal=True)
        except Exception:
            pass
keep = Last()
sys.keep = Last()
saccade.attention(q, k, v, causal=True)
""")
    assert status == 0, err


def test_a_daemon_thread_that_calls_while_the_interpreter_ends_does_not_crash():
    for _ in range(3):
        status, _, err = run_python("""
import threading, time
def forever():
    while True:
        saccade.attention(q, k, v, causal=True)
saccade.attention(q, k, v, causal=True)
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)
""")
        assert status == 0, err


def test_the_end_prints_nothing():
    status, out, err = run_python("""
plan = saccade.prepare(q, k, v, mask=causal)
rule = saccade.mask(causal) & saccade.window(3, 0)
saccade.attention(q, k, v, mask=rule)
""")
    assert (status, out, err) == (0, "", "")


def test_the_end_prints_nothing_when_another_library_leaks_a_reference():
    """As pytest and parts of PyTorch do."""
    status, out, err = run_python("""
import ctypes
ctypes.pythonapi.Py_IncRef(ctypes.py_object(saccade.attention))
saccade.attention(q, k, v, causal=True)
""")
    assert (status, out, err) == (0, "", "")


def test_importing_neither_needs_nor_loads_torch():
    status, out, err = run_python("print('torch' in sys.modules, right(saccade.attention(q, k, v, mask=causal)))")
    assert (status, out.strip()) == (0, "False True"), err


@pytest.mark.parametrize("name", ["torch.scaled_dot_product_attention", "transformers.register"])
def test_the_fronts_of_other_packages_need_no_import(name):
    if name.startswith("transformers"):
        pytest.importorskip("transformers")
    status, out, err = run_python(f"print(callable(saccade.{name}), hasattr(saccade, 'jax'))")
    assert (status, out.strip()) == (0, "True False"), err


def test_an_interrupt_is_not_lost(tmp_path):
    """Ctrl-C while a kernel is made ends with KeyboardInterrupt, not with a crash."""
    status, out, err = run_python(f"""
import signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background has it ignored
saccade.configure(cache_directory={str(tmp_path)!r})
threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    for size in range(200):
        saccade.attention(q, k, v, score=f"score * {{size}}.5")
    print("never interrupted")
except KeyboardInterrupt:
    print("interrupted", right(saccade.attention(q, k, v, causal=True)))
""")
    assert status == 0, err
    assert out.strip() == "interrupted True", out + err
