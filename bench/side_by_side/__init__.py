"""The parts of the benchmarks that time Saccade beside PyTorch in one process (bench/forward.py)."""
