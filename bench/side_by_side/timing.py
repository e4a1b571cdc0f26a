"""How calls are timed: two modes, on a GPU by events and on a CPU by the clock, implementations interleaved.

burst: a pause, a few warm-ups, then single launches, each timed by itself: what a user sees whose GPU has gaps between kernels;
    clocks are high.
sustained: launches back to back without a gap, timed in chunks: what a user sees whose GPU is always busy; clocks are what the
    power limit allows.
"""
from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from typing import Callable, Iterable

import torch

MODES = ("burst", "sustained")
CHUNK_MS = 5.0  # of a sustained run: what one time is the mean of


@dataclasses.dataclass(frozen=True)
class Timing:
    """launches: of a burst. sustain_s: what the chunks of a sustained run last, after settle_s that are not timed.
    longest_burst_s: after that long a burst ends early, with three launches at least (CPUs only)."""
    rounds: int = 3
    idle_s: float = 0.15
    warmups: int = 3
    launches: int = 20
    sustain_s: float = 0.25
    settle_s: float = 0.05
    longest_burst_s: float = 2.0


@dataclasses.dataclass(frozen=True)
class Implementation:
    """call(): enqueues one run and gives its output. context(): entered around many calls, so that it costs each nothing."""
    name: str
    call: Callable[[], torch.Tensor]
    context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext


@dataclasses.dataclass
class Samples:
    """Milliseconds of one call: a list for each round. clocks_mhz: the SM clock after each round, empty on CPUs."""
    rounds: list[list[float]] = dataclasses.field(default_factory=list)
    clocks_mhz: list[float] = dataclasses.field(default_factory=list)

    def median_ms(self) -> float:
        return median(time_ms for times in self.rounds for time_ms in times)


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class CudaTimer:
    """Times by events on the current stream."""
    # At least 55 us at 2 GHz, so that what follows is enqueued before the spin ends.
    LEAST_SPIN_CYCLES = 110_000
    # 1 ms: long beside the few microseconds between two events, so that it tells the clock within 0.5%.
    CLOCK_CYCLES = 2_000_000

    def __init__(self, timing: Timing):
        self._timing = timing
        self._spin_cycles = self.LEAST_SPIN_CYCLES
        self._estimates_ms: dict[str, float] = {}

    def get_ready(self, implementations: list[Implementation]):
        """Finds how long a call takes, and how long one spin must be to hide every implementation's cost on the host."""
        host_s = 0.0
        for implementation in implementations:
            with implementation.context():
                for _ in range(3):
                    implementation.call()
                torch.cuda.synchronize()
                begin, end = _event(), _event()
                torch.cuda._sleep(10 * self.LEAST_SPIN_CYCLES)
                begin.record()
                start = time.perf_counter()
                for _ in range(5):
                    implementation.call()
                host_s = max(host_s, (time.perf_counter() - start) / 5)
                end.record()
                torch.cuda.synchronize()
            self._estimates_ms[implementation.name] = max(1e-3, begin.elapsed_time(end) / 5)
        self._spin_cycles = max(self.LEAST_SPIN_CYCLES, int(2 * host_s * 2e9))

    def burst(self, implementation: Implementation, samples: Samples):
        torch.cuda.synchronize()
        time.sleep(self._timing.idle_s)
        pairs = [(_event(), _event()) for _ in range(self._timing.launches)]
        with implementation.context():
            for _ in range(self._timing.warmups):
                implementation.call()
            for begin, end in pairs:
                torch.cuda._sleep(self._spin_cycles)
                begin.record()
                implementation.call()
                end.record()
        samples.clocks_mhz.append(self._clock_mhz())
        samples.rounds.append([begin.elapsed_time(end) for begin, end in pairs])

    def sustained(self, implementation: Implementation, samples: Samples):
        estimate_ms = self._estimates_ms[implementation.name]
        calls = max(1, round(CHUNK_MS / estimate_ms))
        chunks = max(3, math.ceil(self._timing.sustain_s * 1e3 / (calls * estimate_ms)))
        events = [_event() for _ in range(chunks + 1)]
        with implementation.context():
            for _ in range(math.ceil(self._timing.settle_s * 1e3 / estimate_ms)):
                implementation.call()
            events[0].record()
            for event in events[1:]:
                for _ in range(calls):
                    implementation.call()
                event.record()
        samples.clocks_mhz.append(self._clock_mhz())
        samples.rounds.append([begin.elapsed_time(end) / calls for begin, end in zip(events, events[1:])])

    def _clock_mhz(self) -> float:
        """The SM clock at the end of what is enqueued: the spin kernel counts cycles, the events microseconds."""
        begin, end = _event(), _event()
        begin.record()
        torch.cuda._sleep(self.CLOCK_CYCLES)
        end.record()
        torch.cuda.synchronize()
        return self.CLOCK_CYCLES / (begin.elapsed_time(end) * 1e3)


def _event():
    return torch.cuda.Event(enable_timing=True)


class CpuTimer:
    """Times by the clock; calls return when they are done."""

    def __init__(self, timing: Timing):
        self._timing = timing

    def get_ready(self, implementations: list[Implementation]):
        pass

    def burst(self, implementation: Implementation, samples: Samples):
        time.sleep(self._timing.idle_s)
        deadline = time.perf_counter() + self._timing.longest_burst_s
        with implementation.context():
            for _ in range(self._timing.warmups):
                implementation.call()
                if time.perf_counter() > deadline:
                    break
            times = []
            while len(times) < self._timing.launches and (len(times) < 3 or time.perf_counter() < deadline):
                times.append(_timed_ms(implementation.call))
        samples.rounds.append(times)

    def sustained(self, implementation: Implementation, samples: Samples):
        with implementation.context():
            calls = max(1, round(CHUNK_MS / _timed_ms(implementation.call)))
            times = []
            while len(times) < 3 or sum(times) * calls < self._timing.sustain_s * 1e3:
                times.append(_timed_ms(implementation.call, calls))
        samples.rounds.append(times)


def _timed_ms(call, calls: int = 1) -> float:
    """Of one call, the mean of that many."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e3


def interleaved(timer: CudaTimer | CpuTimer, mode: str, implementations: list[Implementation], rounds: int) -> dict[str, Samples]:
    """Samples of each implementation: one turn of each a round, the order rotated, so that drift hits all alike."""
    samples = {implementation.name: Samples() for implementation in implementations}
    turn = {"burst": timer.burst, "sustained": timer.sustained}[mode]
    for number in range(rounds):
        first = number % len(implementations)
        for implementation in implementations[first:] + implementations[:first]:
            turn(implementation, samples[implementation.name])
    return samples
