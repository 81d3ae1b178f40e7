"""Starts the real binary on a free port and hands out clients.

GRISTMILL_BIN is the program (default: build/release/gristmill), GRISTMILL_TEST_MODEL the model (default: the tiny one of
tests/golden, random weights, which some expectations are about).
"""
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("GRISTMILL_BIN", ROOT / "build" / "release" / "gristmill"))
MODEL = pathlib.Path(os.environ.get("GRISTMILL_TEST_MODEL", ROOT / "tests" / "golden" / "tiny_llama.gguf"))


def pytest_collection_modifyitems(items):
    for path, name in ((BINARY, "GRISTMILL_BIN"), (MODEL, "GRISTMILL_TEST_MODEL")):
        if not path.exists():
            for item in items:
                item.add_marker(pytest.mark.skip(reason=f"{path} is missing ({name})"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One running server; its log is kept."""

    def __init__(self, *flags, model=MODEL, env=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [str(BINARY), "serve", str(model), "--host", "127.0.0.1", "--port", str(self.port),
                   "--served-model-name", "tiny", "other-name", "--kv-cache-memory-bytes", "64M", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def log(self):
        return "\n".join(self.lines)

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.reader.join(5)
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log}")
            if any("Application startup complete." in line for line in self.lines):
                return self
            time.sleep(0.01)
        raise RuntimeError(f"the server is not ready:\n{self.log}")

    def engine_pids(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = set(children.read_text().split())
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            pids.update((task / "children").read_text().split())
        return [int(pid) for pid in pids]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join(5)


def metric(server, name, **labels):
    """The value of the first series of that name that has these labels."""
    for line in httpx.get(f"{server.url}/metrics").text.splitlines():
        if line.split("{")[0].split(" ")[0] == name and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    raise KeyError(name)


def eventually(holds, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="session")
def server():
    running = Server("--enable-prompt-tokens-details", "--max-logprobs", "-1", env={"VLLM_SERVER_DEV_MODE": "1"}).wait_ready()
    yield running
    running.stop()
    assert running.process.returncode == 0, running.log


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, timeout=30) as made:
        yield made


@pytest.fixture
def start_server():
    """Starts further servers, which are stopped at the end of the test."""
    started = []

    def start(*flags, **options):
        started.append(Server(*flags, **options))
        return started[-1]

    yield start
    for each in started:
        each.stop()
