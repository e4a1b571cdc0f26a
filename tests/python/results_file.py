"""pytest's option --results FILE: what passed, failed and was skipped in a run, in the format of every results file. With pytest-xdist
the controller writes it."""

from __future__ import annotations

import json
import pathlib
import shlex
import sys
import time

import torch

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def pytest_addoption(parser):
    parser.addoption("--results", type=pathlib.Path, metavar="FILE", help="JSON file of every test's outcome")


def pytest_configure(config):
    is_xdist_worker = hasattr(config, "workerinput")
    if config.getoption("--results") and not is_xdist_worker:
        config.pluginmanager.register(ResultsFile(config))


class ResultsFile:
    """Collects the outcomes of a session and writes them at its end."""

    def __init__(self, config):
        self._path = config.getoption("--results")
        self._arguments = config.invocation_params.args
        self._begin = time.monotonic()
        self._rows: dict[str, dict] = {}

    def pytest_collectreport(self, report):
        """Modules that cannot be read, or skip themselves, have a row instead of those of their tests."""
        if not report.passed:
            self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report):
        """Called for set-up, call and tear-down of each test: the worst of the three counts."""
        row = self._rows.setdefault(report.nodeid, {"test": report.nodeid, "outcome": "passed"})
        if report.failed:
            row["outcome"] = "failed"
        elif report.skipped and row["outcome"] == "passed":
            row |= {"outcome": "skipped", "reason": report.longrepr[2].removeprefix("Skipped: ")}

    def pytest_sessionfinish(self, exitstatus):
        sys.path.insert(0, str(BENCH))
        import capi
        from side_by_side import machine

        kind = "cuda" if torch.cuda.is_available() else "cpu"
        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        rows = sorted(self._rows.values(), key=lambda row: row["test"])
        counts = {outcome: sum(row["outcome"] == outcome for row in rows) for outcome in ("passed", "failed", "skipped")}
        document = capi.results_document(", ".join(gpus) or machine.describe("cpu"), rows, versions=machine.versions(kind), **counts,
                                         seconds=round(time.monotonic() - self._begin, 1), exit_code=int(exitstatus))
        document["command"] = "python3 -m pytest " + shlex.join(map(str, self._arguments))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
