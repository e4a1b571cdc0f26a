"""What a results file says of the machine and of the versions of what is compared."""
from __future__ import annotations

import importlib.metadata
import platform
import subprocess

import torch

import capi
import saccade

# Data sheet of the H200 SXM: dense bf16 and f16 tensor cores, HBM3e.
_PEAKS = {"H200": {"tflops": 989.4, "terabytes_per_s": 4.8, "source": "H200 SXM data sheet, dense bf16 or f16"}}


def describe(device: str) -> str:
    """One line, as results files have it."""
    if device == "cpu":
        return f"{capi.cpu_name()}, {torch.get_num_threads()} threads"
    return torch.cuda.get_device_name()


def versions(device: str) -> dict:
    found = {"python": platform.python_version(), "torch": torch.__version__, "saccade": saccade.__version__}
    if device != "cpu":
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "driver": _nvidia_smi("driver_version")}
        for package in ("triton", "nvidia-cuda-nvrtc"):
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                pass
    return found


def gpu(device: str) -> dict | None:
    """Limits that bear on speed. The clocks at which the rows ran are in the rows."""
    if device == "cpu":
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"sms": properties.multi_processor_count, "memory_bytes": properties.total_memory,
            "largest_sm_clock_mhz": _nvidia_smi("clocks.max.sm"), "power_limit_w": _nvidia_smi("power.limit")}


def peaks(device: str, tflops: float | None, terabytes_per_s: float | None) -> dict | None:
    """For the roofline: what was given, else the data sheet's of a GPU known here, else nothing."""
    known = next((dict(peak) for name, peak in _PEAKS.items() if name in describe(device)), None)
    if tflops is None and terabytes_per_s is None:
        return known
    found = known or {"tflops": None, "terabytes_per_s": None}
    given = {"tflops": tflops, "terabytes_per_s": terabytes_per_s, "source": "given on the command line"}
    return found | {name: value for name, value in given.items() if value is not None}


def _nvidia_smi(field: str):
    """A field of nvidia-smi, None where there is none."""
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    try:
        text = subprocess.run(["nvidia-smi", f"--id=GPU-{uuid.removeprefix('GPU-')}", f"--query-gpu={field}",
                               "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    try:
        return float(text)
    except ValueError:
        return text or None
