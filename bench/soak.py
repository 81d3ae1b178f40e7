"""Many short requests on one server, and its memory over time: soak.py GRISTMILL MODEL [--requests 50000] [--threads N]

Prompts are random, so that the cache fills up and evicts; a sixteenth of the clients leaves before the answer. Prints
resident memory of the front and of the engine after every tenth, and how much either grew in the second half; the exit
status is 1 when that is more than a limit.
"""
import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import time

import load
from peers import free_port, wait_healthy


def resident_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0


async def request(port, body, leave):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    payload = json.dumps(body).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % len(payload) + payload
    )
    await writer.drain()
    if not leave:
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError((status + await reader.read(2000)).decode(errors="replace"))
        await reader.read()
    writer.close()


async def many(port, count, concurrency, vocabulary, source):
    left = count

    async def worker():
        nonlocal left
        while left > 0:
            left -= 1
            prompt = [source.randrange(vocabulary // 4, vocabulary) for _ in range(source.randrange(1, 24))]
            body = {"prompt": prompt, "max_tokens": 1, "temperature": source.choice([0, 1]), "stream": left % 2 == 0}
            if left % 5 == 0:
                body |= {"logprobs": 2, "stop": ["\n\n"]}
            await request(port, body, left % 16 == 0)

    await asyncio.gather(*(worker() for _ in range(concurrency)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gristmill")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=50000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--limit-mib", type=float, default=8, help="most that either process may grow in the second half")
    args = parser.parse_args()
    port = free_port()
    # A small cache: it is full, and every page of it touched, long before the first half is over.
    process = subprocess.Popen(
        [args.gristmill, "serve", args.model, "--host", "127.0.0.1", "--port", str(port), "--threads", str(args.threads),
         "--max-model-len", "1024", "--kv-cache-memory-bytes", "64M", "--disable-uvicorn-access-log"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_healthy(port, process)
        engine = next(pid for pid in load.family(process.pid) if pid != process.pid)
        source, started, history = random.Random(1), time.monotonic(), []
        for tenth in range(11):
            if tenth > 0:
                asyncio.run(many(port, args.requests // 10, args.concurrency, args.vocabulary, source))
            history.append((resident_mib(process.pid), resident_mib(engine)))
            files = len(os.listdir(f"/proc/{process.pid}/fd"))
            print(f"{tenth * (args.requests // 10):7d} requests, {time.monotonic() - started:6.0f} s: front "
                  f"{history[-1][0]:7.2f} MiB, engine {history[-1][1]:7.2f} MiB, {files} files", flush=True)
        grown = [history[-1][i] - history[5][i] for i in range(2)]
        print(f"second half: front {grown[0]:+.2f} MiB, engine {grown[1]:+.2f} MiB; {load.host_overhead(port)}")
        return 1 if max(grown) > args.limit_mib else 0
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


if __name__ == "__main__":
    raise SystemExit(main())
