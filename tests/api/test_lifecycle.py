"""Starting, failing, restarting and ending."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import httpx
import pytest

from conftest import BINARY, MODEL, ROOT, eventually, metric

LONG = {"prompt": "The", "max_tokens": 1500, "stream": True, "ignore_eos": True, "temperature": 1}


def run(*arguments):
    return subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_version_and_help():
    assert run("--version").stdout.startswith("gristmill ")
    assert "--max-model-len" in run("serve", "--help").stdout


@pytest.mark.parametrize("arguments, status, words", [
    (("serve", "--prot", "1"), 2, ["--prot", "did you mean --port?"]),
    (("serve", "--tensor-parallel-size", "2"), 2, ["--tensor-parallel-size", "not supported yet"]),
    (("serve", MODEL, "--port", "x"), 2, ["argument --port: invalid integer value: 'x'"]),
    (("serve", MODEL, "--gpu-memory-utilization", "2"), 1, ["--gpu-memory-utilization"]),
    (("serve", "/nowhere/model.gguf", "--port", "0"), 1, ["/nowhere/model.gguf"]),
    (("serve", __file__, "--port", "0"), 1, ["test_lifecycle.py"]),
    (("serve", MODEL, "--port", "0", "--chat-template", "{% if %}"), 1, ["--chat-template: line 1"]),
    (("serve", MODEL, "--port", "0", "--chat-template", "./no/such/file"), 1, ["--chat-template ./no/such/file"]),
    (("nonsense",), 2, ["no such command: nonsense"]),
])
def test_wrong_command_lines_end_with_one_message(arguments, status, words):
    ended = run(*arguments)
    assert ended.returncode == status, ended.stderr
    for word in words:
        assert word in ended.stderr


def test_taken_port_is_named_at_once(server):
    start = time.monotonic()
    ended = run("serve", MODEL, "--host", "127.0.0.1", "--port", server.port)
    assert ended.returncode == 1
    assert f"port {server.port} is already in use" in ended.stderr
    assert str(server.process.pid) in ended.stderr
    assert time.monotonic() - start < 5


def test_start_up_lines(server):
    """What scripts read, in vLLM's order."""
    wanted = ["non-default args: {", "Using max model len 2048",
              "Chunked prefill is enabled with max_num_batched_tokens=2048.", "Asynchronous scheduling is enabled.",
              "Memory plan: ", "Loading weights took ", "Model loading took ", "Available KV cache memory: ",
              "GPU KV cache size: ", "Maximum concurrency for 2,048 tokens per request: ", "init engine (",
              "Supported tasks: ['generate']", f"Starting vLLM server on http://127.0.0.1:{server.port}",
              "Route: /v1/completions, Methods: POST", "curl -N http://127.0.0.1:", "Application startup complete."]
    at = 0
    for line in wanted:
        found = server.log.find(line, at)
        assert found >= at, f"{line!r} is missing or out of order:\n{server.log}"
        at = found
    assert re.search(r"Maximum concurrency for 2,048 tokens per request: \d+\.\d\dx", server.log)
    assert re.search(r"GPU KV cache size: [\d,]+ tokens", server.log)


@pytest.mark.parametrize("flags, words", [
    (["--kv-cache-memory-bytes", "1M", "--max-model-len", "2048"], ["--kv-cache-memory-bytes to ", "--max-model-len to "]),
    (["--kv-cache-memory-bytes", "0", "--num-gpu-blocks-override", "2", "--max-model-len", "2048"],
     ["--num-gpu-blocks-override to 128"]),
    (["--kv-cache-memory-bytes", "0", "--gpu-memory-utilization", "0.00001"], ["--gpu-memory-utilization (now 1e-05) to 0.0"]),
])
def test_memory_that_does_not_suffice_is_refused_with_what_would(start_server, flags, words):
    server = start_server(*flags)
    assert server.process.wait(20) == 1
    server.reader.join(5)
    for word in words:
        assert word in server.log


def tokenizer_json(tokens, model="BPE"):
    vocab = {chr(0x21 + i) if i < 94 else f"t{i}": i for i in range(tokens)}
    return json.dumps({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                       "decoder": {"type": "ByteLevel"}, "model": {"type": model, "vocab": vocab, "merges": []}})


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("family, tokenizer, damage, words", [
    ("llama", tokenizer_json(96, "Unigram"), None, ["tokenizer.json: model.type", '"Unigram"', "BPE is"]),
    ("llama", tokenizer_json(200), None, ["tokenizer.json", "200 tokens", "96 rows", "vocab_size", "config.json"]),
    ("llama", tokenizer_json(96), lambda f: cut_short(f / "model.safetensors"), ["model.safetensors", "truncated"]),
    ("qwen3_moe", tokenizer_json(96), lambda f: (f / "weights-00002-of-00002.safetensors").unlink(),
     ["weights.safetensors.index.json", '"weights-00002-of-00002.safetensors"']),
    ("qwen3_5_moe", tokenizer_json(96),
     lambda f: (f / "config.json").write_text((f / "config.json").read_text().replace('"num_experts"', '"x"')),
     ["config.json", '"num_experts"', "missing"]),
    ("llama", tokenizer_json(96),
     lambda f: (f / "config.json").write_text((f / "config.json").read_text().replace('"llama3"', '"longrope"')),
     ["config.json", "rope_type", '"longrope"', "supported: default, linear, llama3, yarn, mrope"]),
])
def test_a_folder_with_a_fault_ends_with_one_message_before_memory_is_taken(start_server, tmp_path, family, tokenizer,
                                                                             damage, words):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "tests" / "golden" / "hf" / family, folder,
                    ignore=shutil.ignore_patterns("golden.safetensors"))
    (folder / "tokenizer.json").write_text(tokenizer)
    if damage is not None:
        damage(folder)
    server = start_server("--max-model-len", "64", model=folder)
    assert server.process.wait(20) == 1
    server.reader.join(5)
    errors = [line for line in server.lines if "error" in line.lower()]
    assert len(errors) == 1 and errors[0].startswith("gristmill: error: "), server.log
    for word in words:
        assert word in errors[0]
    assert "Loading weights took" not in server.log and "packing" not in server.log


def test_api_key_from_the_environment(start_server):
    server = start_server(env={"VLLM_API_KEY": "secret"}).wait_ready()
    assert httpx.get(f"{server.url}/v1/models").status_code == 401
    assert httpx.get(f"{server.url}/v1/models", headers={"authorization": "Bearer secret"}).status_code == 200
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert "secret" not in server.log


def test_unix_socket(start_server, tmp_path):
    path = tmp_path / "socket"
    start_server("--uds", str(path)).wait_ready()
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"


def test_sigterm_lets_running_streams_end(start_server):
    server = start_server().wait_ready()
    with httpx.stream("POST", f"{server.url}/v1/completions", json=LONG | {"n": 16}) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: "Shutting down" in server.log)
        assert httpx.get(f"{server.url}/health").status_code == 503
        refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"})
        assert refused.status_code == 503 and refused.headers["connection"] == "close"
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2]
    assert server.process.wait(10) == 0


def test_shutdown_timeout_aborts(start_server):
    server = start_server("--shutdown-timeout", "0").wait_ready()
    with httpx.stream("POST", f"{server.url}/v1/completions", json=LONG) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGINT)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"abort"' in rest[-2]
    assert server.process.wait(10) == 0


def test_second_signal_ends_at_once(start_server):
    server = start_server().wait_ready()
    with httpx.stream("POST", f"{server.url}/v1/completions", json=LONG | {"n": 32}) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGINT)
        assert eventually(lambda: "Shutting down" in server.log)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(3) != 0, server.log


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
def test_engine_that_fails_is_replaced_behind_the_same_port(start_server, blow):
    """Dead or stuck in the middle of streams: an error event within 10 s, /health 503 and then 200, counters correct."""
    server = start_server().wait_ready()
    engine = server.engine_pids()[0]
    body = {"prompt": "The river", "max_tokens": 8, "temperature": 1, "seed": 3}
    before = httpx.post(f"{server.url}/v1/completions", json=body).json()["choices"][0]["text"]
    statuses = []
    with httpx.stream("POST", f"{server.url}/v1/completions", json=LONG | {"n": 2}, timeout=30) as stream:
        lines = stream.iter_lines()
        next(lines)
        os.kill(engine, blow)
        struck = time.monotonic()
        rest = [line for line in lines if line]
        assert time.monotonic() - struck < 10
        statuses.append(httpx.get(f"{server.url}/health").status_code)
    assert rest[-1] == "data: [DONE]"
    assert rest[-2].startswith('data: {"error":')
    assert statuses == [503]
    assert eventually(lambda: httpx.get(f"{server.url}/health").status_code == 200, 20)
    assert server.engine_pids()[0] != engine
    assert httpx.post(f"{server.url}/v1/completions", json=body).json()["choices"][0]["text"] == before
    assert metric(server, "vllm:request_success_total", finished_reason="error") == 2
    assert metric(server, "vllm:request_success_total", finished_reason="length") == 2
    assert eventually(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert metric(server, "vllm:generation_tokens_total") >= 16
    assert metric(server, "vllm:kv_cache_usage_perc") == 0


DEFAULT_MODEL = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"),
                             "gristmill", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.mark.skipif(not DEFAULT_MODEL.exists(), reason=f"{DEFAULT_MODEL} is missing (./dev serve fetches it)")
def test_weights_kept_on_disk_serve_the_next_start_and_damaged_ones_a_restart(start_server, tmp_path):
    """The second start maps what the first has packed; a wrong byte in it has the engine replaced and weights packed anew."""
    def answer(server):
        body = {"prompt": "The river", "max_tokens": 8, "temperature": 0}
        return httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]

    flags = ["--weight-cache-dir", str(tmp_path / "weights"), "--weight-residence", "mapped"]
    first = start_server(*flags, model=DEFAULT_MODEL).wait_ready()
    expected = answer(first)
    assert eventually(lambda: [f.suffix for f in (tmp_path / "weights").glob("*")] == [".weights"], 60)
    first.stop()
    (kept,) = (tmp_path / "weights").glob("*.weights")

    second = start_server(*flags, model=DEFAULT_MODEL).wait_ready()
    assert "mapped from the weight cache" in second.log and "packing weights" not in second.log
    assert answer(second) == expected
    second.stop()

    with kept.open("r+b") as file:
        file.seek(-4097, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-4097, os.SEEK_END)
        file.write(bytes([byte ^ 64]))
    third = start_server(*flags, model=DEFAULT_MODEL).wait_ready()
    assert eventually(lambda: "Engine process ends to be started anew" in third.log, 60)
    assert eventually(lambda: third.log.count("Memory plan") == 2 and
                      httpx.get(f"{third.url}/health").status_code == 200, 60)
    assert answer(third) == expected


def test_aborts_free_blocks_of_running_queued_and_child_requests(start_server):
    """Two sequences may run: two of one request's children do, the others and another request wait."""
    server = start_server("--max-num-seqs", "2").wait_ready()
    ended = lambda reason: metric(server, "vllm:request_success_total", finished_reason=reason)
    with httpx.stream("POST", f"{server.url}/v1/completions", json=LONG | {"n": 64}) as first:
        lines = first.iter_lines()  # dropping it would close the stream
        next(lines)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json=LONG | {"stream": False}, timeout=0.3)
        assert eventually(lambda: ended("abort") == 1)
        assert eventually(lambda: metric(server, "vllm:num_requests_running") == 2)
        assert metric(server, "vllm:num_requests_waiting") > 0
        assert metric(server, "vllm:kv_cache_usage_perc") > 0
    assert eventually(lambda: metric(server, "vllm:kv_cache_usage_perc") == 0, 2)
    assert metric(server, "vllm:num_requests_running") == 0
    assert metric(server, "vllm:num_requests_waiting") == 0
    assert ended("abort") > 1
    assert ended("abort") + ended("length") == 65


def test_killing_the_front_takes_the_engine_with_it(start_server):
    server = start_server().wait_ready()
    engine = server.engine_pids()[0]
    server.process.kill()

    def gone():
        try:
            with open(f"/proc/{engine}/stat") as stat:
                return stat.read().split(") ")[1].startswith("Z")
        except FileNotFoundError:
            return True

    assert eventually(gone)


def test_slow_reader_does_not_hold_up_others(server):
    """A client that never reads its stream; another one's request goes through meanwhile."""
    with httpx.stream("POST", f"{server.url}/v1/completions", json=LONG | {"max_tokens": 1800}):
        done = threading.Event()

        def other():
            httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "max_tokens": 3}).raise_for_status()
            done.set()

        threading.Thread(target=other).start()
        assert done.wait(10)
