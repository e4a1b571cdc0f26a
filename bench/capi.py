"""Just enough of the C interface (include/saccade/saccade.h) for the benchmarks, by ctypes. The Python package is another thing."""
import ctypes
import json
import os
import pathlib
import platform
import subprocess
import sys
import datetime

I32, I64, F32, PTR, TEXT, SIZE = (ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p, ctypes.c_char_p,
                                  ctypes.c_size_t)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def _struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


EngineOptions = _struct("EngineOptions", ("struct_size", SIZE), ("cache_directory", TEXT), ("packs", PTR), ("pack_count", SIZE),
                        ("cache_max_bytes", I64), ("cache_read_only", I32), ("cache_memory_only", I32), ("cpu_threads", I32))
Shape = _struct("Shape", ("struct_size", SIZE), ("batch", I64), ("heads_q", I64), ("heads_kv", I64), ("seqlen_q", I64),
                ("seqlen_kv", I64), ("total_q", I64), ("total_kv", I64), ("alignment", I32))
PrepareOptions = _struct("PrepareOptions", ("struct_size", SIZE), ("tuning", I32), ("schedule_json", TEXT), ("scalars", PTR),
                         ("tables", PTR), ("no_cache", I32), ("stream", PTR))
Strides = _struct("Strides", ("batch", I64), ("head", I64), ("row", I64))
RunArguments = _struct("RunArguments", ("struct_size", SIZE), ("q", PTR), ("k", PTR), ("v", PTR), ("o", PTR), ("lse", PTR),
                       ("q_stride", Strides), ("k_stride", Strides), ("v_stride", Strides), ("o_stride", Strides),
                       ("cu_seqlens_q", PTR), ("cu_seqlens_kv", PTR), ("tables", PTR), ("scalars", PTR), ("workspace", PTR),
                       ("stream", PTR), ("scale", F32), ("has_scale", I32))
TUNING = {"off": 0, "quick": 1, "normal": 2, "exhaustive": 3}


class Saccade:
    """One engine of one library."""

    def __init__(self, library, cache_directory=None, cpu_threads=0):
        self.lib = ctypes.CDLL(str(library))
        self.lib.saccade_last_error.restype = TEXT
        self.lib.saccade_text_free.argtypes = [PTR]
        options = EngineOptions(struct_size=ctypes.sizeof(EngineOptions), cpu_threads=cpu_threads,
                                cache_directory=str(cache_directory).encode() if cache_directory else None,
                                cache_memory_only=0 if cache_directory else 1)
        self.engine = PTR()
        self.check(self.lib.saccade_engine_create(ctypes.byref(options), ctypes.byref(self.engine)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.saccade_last_error().decode())

    def text(self, function, *arguments):
        """Calls a function whose last argument is a char** and gives the parsed JSON."""
        out = PTR()
        self.check(function(*arguments, ctypes.byref(out)))
        value = ctypes.string_at(out).decode()
        self.lib.saccade_text_free(out)
        return json.loads(value)

    def problem(self, **fields):
        handle = PTR()
        self.check(self.lib.saccade_problem_from_json(json.dumps(fields).encode(), ctypes.byref(handle)))
        return handle

    def prepare(self, device, problem, shape, tuning="off", schedule=None):
        options = PrepareOptions(struct_size=ctypes.sizeof(PrepareOptions), tuning=TUNING[tuning],
                                 schedule_json=json.dumps(schedule).encode() if schedule else None)
        sizes = Shape(struct_size=ctypes.sizeof(Shape), **shape)
        plan = PTR()
        self.check(self.lib.saccade_prepare(self.engine, device.encode(), problem, ctypes.byref(sizes), ctypes.byref(options),
                                            ctypes.byref(plan)))
        return Plan(self, plan)


class Plan:
    def __init__(self, owner, handle):
        self.owner, self.handle = owner, handle
        size = I64()
        owner.check(owner.lib.saccade_plan_workspace_bytes(handle, ctypes.byref(size)))
        self.workspace_bytes = size.value
        self.report = owner.text(owner.lib.saccade_plan_report, handle)

    def bind(self, q, k, v, o, workspace=None, stream=None):
        """A callable that runs the plan on torch tensors [batch, heads, seqlen, head_dim] (any strides, unit inner stride)."""
        strides = [Strides(t.stride(0), t.stride(1), t.stride(2)) for t in (q, k, v, o)]
        arguments = RunArguments(struct_size=ctypes.sizeof(RunArguments), q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(),
                                 o=o.data_ptr(), q_stride=strides[0], k_stride=strides[1], v_stride=strides[2],
                                 o_stride=strides[3], workspace=workspace.data_ptr() if workspace is not None else None,
                                 stream=stream)
        reference, run, check = ctypes.byref(arguments), self.owner.lib.saccade_plan_run, self.owner.check
        handle, keep = self.handle, (arguments, q, k, v, o, workspace)

        def call(_keep=keep):
            check(run(handle, reference))
        return call


def find_library():
    """$SACCADE_LIBRARY, else libsaccade.so of the first build folder that has one."""
    if os.environ.get("SACCADE_LIBRARY"):
        return os.environ["SACCADE_LIBRARY"]
    for preset in ("release", "portable", "dev"):
        found = sorted((ROOT / "build" / preset).glob("**/libsaccade.so*"))
        if found:
            return found[0]
    raise SystemExit("no libsaccade.so under build/: run `make build` or set SACCADE_LIBRARY")


def commit():
    if os.environ.get("SACCADE_COMMIT"):
        return os.environ["SACCADE_COMMIT"]
    try:
        return subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                              text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())


def results_document(machine, rows, **more):
    """The format of every results file: command, commit, machine, date, rows."""
    return {"command": "python3 " + " ".join(sys.argv), "commit": commit(), "machine": machine,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), **more, "rows": rows}


def write_results(path, machine, rows, **more):
    """Writes a results_document."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(json.dumps(results_document(machine, rows, **more), indent=1) + "\n", encoding="utf-8")
