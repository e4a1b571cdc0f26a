"""Run by start_times.py in a fresh process: how long the first call of one implementation takes, as JSON on standard output.

    start_once.py saccade|flex DEVICE DTYPE HEAD_DIM BATCH SEQLEN HEADS RULE
"""
import json
import pathlib
import sys
import time

BEGIN = time.perf_counter()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from side_by_side import ops  # noqa: E402
from side_by_side.cases import Case  # noqa: E402


def main():
    name, device, dtype, head_dim, batch, length, heads, rule = sys.argv[1:]
    case = Case("fwd", dtype, int(head_dim), rule != "full", int(batch), int(length), int(heads), rule)
    op = ops.OPS[case.op]
    inputs = op.inputs(case, device)  # makes the CUDA context, too
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    wait()
    ready = time.perf_counter()
    implementation, notes = op.build(name, case, inputs, "off")
    built = time.perf_counter()
    output = implementation.call()
    wait()
    done = time.perf_counter()
    implementation.call()
    wait()
    again = time.perf_counter()
    error = op.error(case, inputs, output)
    print(json.dumps({"setup_ms": (ready - BEGIN) * 1e3, "build_ms": (built - ready) * 1e3, "first_call_ms": (done - built) * 1e3,
                      "second_call_ms": (again - done) * 1e3, "right": error <= ops.TOLERANCES[dtype], **notes}))


if __name__ == "__main__":
    main()
