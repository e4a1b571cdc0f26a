"""The option --results of these tests."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

TESTS = """
import pytest

@pytest.fixture
def broken_afterwards():
    yield
    raise RuntimeError

def test_passes():
    pass

def test_fails():
    assert False

def test_fails_afterwards(broken_afterwards):
    pass

def test_is_skipped():
    pytest.skip("not here")
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_worst_outcome_of_each_test_is_written(tmp_path, workers):
    if workers:
        pytest.importorskip("xdist")
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test_module.py").write_text("import pytest\npytest.skip('nothing here', allow_module_level=True)", encoding="utf-8")
    command = ["-p", "results_file", "--results", "results/some.json", *(["-n", str(workers)] if workers else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), *filter(None, sys.path)]),
                   "SACCADE_COMMIT": "0123456789ab"}
    subprocess.run([sys.executable, "-m", "pytest", *command], cwd=tmp_path, env=environment, capture_output=True, timeout=120)
    document = json.loads((tmp_path / "results" / "some.json").read_text(encoding="utf-8"))
    assert document["command"] == "python3 -m pytest " + " ".join(command)
    assert document["commit"] == "0123456789ab" and document["machine"] and document["date"].endswith("Z")
    assert document["versions"]["torch"] and document["exit_code"] == 1
    assert [document[name] for name in ("passed", "failed", "skipped")] == [1, 2, 2]
    assert {row["test"].split("::")[-1]: row["outcome"] for row in document["rows"]} == {
        "test_passes": "passed", "test_fails": "failed", "test_fails_afterwards": "failed", "test_is_skipped": "skipped",
        "test_module.py": "skipped"}
    assert [row["reason"] for row in document["rows"] if "reason" in row] == ["nothing here", "not here"]
