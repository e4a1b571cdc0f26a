"""NVRTC through ctypes: CUDA source to cubin with the templates of this tree, and what ptxas says about it."""
import ctypes
import glob
import os
import re
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def _library():
    candidates = ["libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    for path in sys.path:
        candidates += glob.glob(os.path.join(path, "nvidia", "*", "lib", "libnvrtc.so.1[23]"))
    for name in candidates:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError("no NVRTC found: " + ", ".join(candidates))


_nvrtc = None
_include = None


def _setup():
    global _nvrtc, _include
    if _nvrtc is None:
        _nvrtc = _library()
        _include = tempfile.mkdtemp(prefix="saccade_kernel_dev_")
        os.symlink(os.environ.get("SACCADE_TEMPLATES", os.path.join(ROOT, "templates")), os.path.join(_include, "saccade_templates"))
    return _nvrtc


class Compiled:
    def __init__(self, cubin, log, seconds):
        self.cubin, self.log, self.seconds = cubin, log, seconds
        numbers = lambda pattern: [int(x) for x in re.findall(pattern, log)]
        self.registers = max(numbers(r"Used (\d+) registers"), default=0)
        self.spill_bytes = sum(numbers(r"(\d+) bytes spill stores")) + sum(numbers(r"(\d+) bytes spill loads"))
        self.stack_bytes = max(numbers(r"(\d+) bytes stack frame"), default=0)


def compile_source(source, arch="sm_90a", extra=()):
    nvrtc = _setup()
    program = ctypes.c_void_p()
    options = [f"--gpu-architecture={arch}", "--std=c++20", f"-I{_include}", "--ptxas-options=-v",
               "--no-cache", *extra]
    encoded = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    start = time.process_time()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None):
        raise RuntimeError("nvrtcCreateProgram failed")
    status = nvrtc.nvrtcCompileProgram(program, len(options), encoded)
    seconds = time.process_time() - start  # of this CPU: the machine may be shared
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    log = log.value.decode(errors="replace")
    if status:
        raise RuntimeError(log[:800])
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return Compiled(cubin.raw, log, seconds)
