import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.dvc_repro import StageFailed, dvc_repro


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "a folder ü"
    root.mkdir()
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=root, check=True)
    return root


def _write(root: Path, script: str) -> None:
    (root / "stage.py").write_text(script)
    (root / "dvc.yaml").write_text("stages: {one: {cmd: python stage.py, outs: [out.txt]}}")


def test_output_is_streamed_and_the_result_is_made(project):
    _write(project, "print('working'); open('out.txt', 'w').write('x')")
    lines: list[str] = []
    dvc_repro(["one"], project, lines.append)
    assert "working" in lines
    assert (project / "out.txt").read_text() == "x"


@pytest.mark.parametrize(("code", "user_error"), [(2, True), (1, False)])
def test_a_failed_stage_raises_with_its_own_words(project, code, user_error):
    _write(project, f"import sys; print('error: row 3 is bad', file=sys.stderr); sys.exit({code})")
    with pytest.raises(StageFailed, match="row 3 is bad") as caught:
        dvc_repro(["one"], project, lambda line: None)
    assert caught.value.user_error is user_error


def test_sigterm_leaves_no_orphan(project):
    _write(project, "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(120)")
    runner = "from pathlib import Path; from flows.dvc_repro import dvc_repro\n"
    runner += f"dvc_repro(['one'], Path({str(project)!r}), print)"
    process = subprocess.Popen([sys.executable, "-c", runner], stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
    pid = _wait_for(lambda: (project / "pid").exists() and (project / "pid").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    _wait_for(lambda: not _alive(int(pid)))
    _write(project, "open('out.txt', 'w').write('again')")
    dvc_repro(["one"], project, lambda line: None)
    assert (project / "out.txt").read_text() == "again"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def _wait_for(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("the condition did not come true")
