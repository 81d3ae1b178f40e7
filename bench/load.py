"""A closed-loop load on an OpenAI-compatible server, streaming, with the server's CPU time beside wall time.

Standard library only. `run()` is what the other benchmarks call; as a program it prints one JSON object.
"""
import argparse
import asyncio
import json
import os
import random
import statistics
import time
import urllib.request
from urllib.parse import urlsplit


def family(pid):
    """The process and all its descendants."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as file:
                    todo += [int(child) for child in file.read().split()]
        except OSError:
            pass
    return found


def cpu_seconds(pid):
    total = 0
    for one in family(pid):
        try:
            with open(f"/proc/{one}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid):
    total = 0
    for one in family(pid):
        try:
            with open(f"/proc/{one}/smaps_rollup") as file:
                for line in file:
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
        except OSError:
            pass
    return total


def host_overhead(port):
    """What /metrics of a gristmill server says of its steps: the share of their time outside the forward pass."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        series = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    total = lambda name: next(float(value) for key, value in series.items() if key.startswith(name))
    steps, forward = total("gristmill:engine_step_seconds_total"), total("gristmill:engine_forward_seconds_total")
    count = total("vllm:iteration_tokens_total_count")
    return f"host overhead {100 * (1 - forward / steps):.2f} % of {count:.0f} steps' {steps:.1f} s"


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


async def one_request(host, port, body, timeout):
    """Streams a completion; returns (seconds to first token, gaps, output tokens, cached prompt tokens)."""
    payload = json.dumps(body).encode()
    started = time.perf_counter()
    reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), timeout)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % (host.encode(), len(payload)) + payload
    )
    status = await asyncio.wait_for(reader.readline(), timeout)
    if b" 200 " not in status:
        raise RuntimeError((status + await reader.read(2000)).decode(errors="replace"))
    first, last, gaps, tokens, cached, events = None, None, [], 0, 0, 0
    while True:
        line = await asyncio.wait_for(reader.readline(), timeout)
        if not line:
            break
        line = line.strip()
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]":
            break
        event = json.loads(line[6:])
        if event.get("error"):
            raise RuntimeError(json.dumps(event["error"]))
        usage = event.get("usage")
        if usage:
            tokens = usage["completion_tokens"]
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        if not event.get("choices"):
            continue
        now = time.perf_counter()
        events += 1
        if first is None:
            first = now - started
        else:
            gaps.append(now - last)
        last = now
    writer.close()
    return first, gaps, tokens or events, cached


async def drive(url, model, concurrency, prompts, output_len, timeout):
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise SystemExit("only servers on this machine are loaded")
    todo = list(prompts)
    results = []

    async def worker():
        while todo:
            body = {
                "model": model,
                "prompt": todo.pop(),
                "max_tokens": output_len,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            results.append(await one_request(parts.hostname, parts.port, body, timeout))

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return results


def interfere(url, model, pid, streams=4, output_len=160, long_len=2000, longs=3, timeout=600, vocabulary=49152):
    """Gaps between the tokens of running streams while long prompts arrive one after the other."""
    source = random.Random(time.time_ns())
    prompt = lambda length: [source.randrange(1000, vocabulary) for _ in range(length)]

    async def both():
        running = asyncio.create_task(drive(url, model, streams, [prompt(16) for _ in range(streams)], output_len, timeout))
        await asyncio.sleep(0.2)
        arriving = await drive(url, model, 1, [prompt(long_len) for _ in range(longs)], 1, timeout)
        return await running, arriving

    cpu = cpu_seconds(pid)
    running, arriving = asyncio.run(both())
    gaps = [gap for r in running for gap in r[1]]
    return {
        "gap_p50_ms": 1e3 * percentile(gaps, 0.5),
        "gap_p99_ms": 1e3 * percentile(gaps, 0.99),
        "gap_max_ms": 1e3 * max(gaps),
        "ttft_p50_ms": 1e3 * statistics.median(r[0] for r in arriving),
        "cpu_s": cpu_seconds(pid) - cpu,
    }


def prefix(url, model, pid, shared=400, new=40, requests=6, timeout=600, vocabulary=49152):
    """Time to first token of prompts that share a prefix, against prompts of the same length that share none."""
    source = random.Random(time.time_ns())
    prompt = lambda length: [source.randrange(1000, vocabulary) for _ in range(length)]
    first_tokens = lambda prompts: [r[0] for r in asyncio.run(drive(url, model, 1, prompts, 2, timeout))]
    cold = first_tokens([prompt(shared + new) for _ in range(requests)])
    common = prompt(shared)
    first_tokens([common + prompt(new)])
    warm = first_tokens([common + prompt(new) for _ in range(requests)])

    async def together():  # several at once: all but one run in another slot than the one that computed the prefix
        return await drive(url, model, requests, [common + prompt(new) for _ in range(requests)], 2, timeout)

    cached = [r[3] for r in asyncio.run(together())]
    return {
        "cold_ms": 1e3 * statistics.median(cold),
        "warm_ms": 1e3 * statistics.median(warm),
        "ratio": statistics.median(warm) / statistics.median(cold),
        "cached_together": min(cached),
    }


def run(url, model, pid, concurrency, requests, input_len, output_len, shared=0, seed=None, timeout=600, vocabulary=49152):
    """Runs the load; returns a dict of figures."""
    source = random.Random(seed if seed is not None else time.time_ns())
    low = min(1000, vocabulary // 2)
    prefix = [source.randrange(low, vocabulary) for _ in range(shared)]
    prompts = [prefix + [source.randrange(low, vocabulary) for _ in range(input_len - shared)] for _ in range(requests)]
    cpu, started = cpu_seconds(pid), time.perf_counter()
    results = asyncio.run(drive(url, model, concurrency, prompts, output_len, timeout))
    wall, cpu = time.perf_counter() - started, cpu_seconds(pid) - cpu
    output = sum(r[2] for r in results)
    gaps = [gap for r in results for gap in r[1]]
    return {
        "requests": requests,
        "concurrency": concurrency,
        "input": input_len,
        "output": output,
        "wall_s": wall,
        "cpu_s": cpu,
        "total_tokens_per_cpu_s": (output + requests * input_len) / cpu if cpu else float("nan"),
        "output_tokens_per_cpu_s": output / cpu if cpu else float("nan"),
        "total_tokens_per_s": (output + requests * input_len) / wall,
        "output_tokens_per_s": output / wall,
        "ttft_p50_ms": 1e3 * statistics.median(r[0] for r in results),
        "ttft_p99_ms": 1e3 * percentile([r[0] for r in results], 0.99),
        "gap_p50_ms": 1e3 * percentile(gaps, 0.5),
        "gap_p99_ms": 1e3 * percentile(gaps, 0.99),
        "cached_tokens": sum(r[3] for r in results),
        "resident_mib": resident_bytes(pid) / 2**20,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="")
    parser.add_argument("--pid", type=int, required=True, help="the server's process")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=32)
    parser.add_argument("--shared", type=int, default=0)
    a = parser.parse_args()
    print(json.dumps(run(a.url, a.model, a.pid, a.concurrency, a.requests, a.input_len, a.output_len, a.shared)))


if __name__ == "__main__":
    main()
