"""Time from exec to the first streamed chat token, and memory at idle: startup.py GRISTMILL MODEL [ROUNDS]"""
import http.client
import json
import signal
import statistics
import subprocess
import sys
import time

import load
from peers import free_port


def first_token(port, began, limit=60):
    body = json.dumps({"messages": [{"role": "user", "content": "Say hello."}], "stream": True, "max_tokens": 8, "temperature": 0})
    while time.perf_counter() - began < limit:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit)
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status == 200:
                for line in answer:
                    if line.startswith(b"data: ") and b'"content":"' in line and b'"content":""' not in line:
                        seconds = time.perf_counter() - began
                        answer.read()
                        return seconds
        except OSError:
            pass
        time.sleep(0.002)
    raise SystemExit("no token")


def main():
    binary, model = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    times, cpus, memory = [], [], []
    for _ in range(rounds + 1):
        port = free_port()
        began = time.perf_counter()
        process = subprocess.Popen([binary, "serve", model, "--host", "127.0.0.1", "--port", str(port)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(first_token(port, began))
        cpus.append(load.cpu_seconds(process.pid))
        time.sleep(0.5)
        memory.append(load.resident_bytes(process.pid) / 2**20)
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    # The first round warms the page cache.
    print(f"first chat token {statistics.median(times[1:]):.3f} s after exec ({min(times[1:]):.3f} to {max(times[1:]):.3f}), "
          f"{statistics.median(cpus[1:]):.2f} CPU s; {statistics.median(memory[1:]):.1f} MiB (PSS, both processes)")


if __name__ == "__main__":
    main()
