import os
import signal
import subprocess
import sys
import time

import pytest

from components.errors import UserError
from components.locks import device_lock

_HOLD = """
import sys, time
from pathlib import Path
from components.locks import device_lock
with device_lock("gpu-0", folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_process_waits_and_is_told_who_holds_it(tmp_path, holder):
    told = []
    with (
        pytest.raises(UserError, match=f"gpu-0 is in use by process {holder.pid}"),
        device_lock("gpu-0", wait_s=0.3, on_wait=told.append, folder=tmp_path),
    ):
        pass
    assert told == [f"gpu-0 is in use by process {holder.pid}; waiting"]


def test_kill_9_of_the_holder_frees_the_lock(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    start = time.monotonic()
    with device_lock("gpu-0", wait_s=5, folder=tmp_path) as path:
        assert path.read_text() == f"{os.getpid()}\n"
    assert time.monotonic() - start < 4


def test_other_devices_are_independent(tmp_path, holder):
    with device_lock("gpu-1", wait_s=0, folder=tmp_path):
        pass


def test_a_stage_started_under_the_lock_does_not_wait_for_itself(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARSERL_HELD_DEVICES", raising=False)
    child = "from pathlib import Path; import sys; from components.locks import device_lock\n"
    child += "with device_lock('gpu-0', wait_s=0, folder=Path(sys.argv[1])): print('in')"
    with device_lock("gpu-0", folder=tmp_path):
        out = subprocess.run([sys.executable, "-c", child, str(tmp_path)], capture_output=True, text=True, check=True)
    assert out.stdout == "in\n"
    assert "SPARSERL_HELD_DEVICES" not in os.environ
