"""gristmill and llama.cpp's server (PyPI's xllamacpp) side by side: both run at once, idle but for the one being loaded,
and the cases alternate between them round by round, so that a machine whose speed drifts is fair to both.

    peers.py --gristmill build/release/gristmill --model FILE.gguf [--rounds 5] [--threads 1] [--cases decode,batch16,...]

Prints the median of each figure and the ratio. Speeds are per second of the server's CPU time, beside wall time.
"""
import argparse
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

import load

CASES = {
    # name: concurrency, requests, prompt tokens, output tokens, shared prompt tokens, headline figure
    "decode": (1, 2, 16, 128, 0, "output_tokens_per_cpu_s"),
    "prefill512": (1, 4, 512, 1, 0, "total_tokens_per_cpu_s"),
    "prefill2048": (1, 1, 2048, 1, 0, "total_tokens_per_cpu_s"),
    "batch16": (16, 32, 128, 32, 0, "total_tokens_per_cpu_s"),
    "batch32": (32, 64, 128, 32, 0, "total_tokens_per_cpu_s"),
}


def neighbour(url, model, pid):
    """One stream undisturbed, then while another process burns the last of the cores, per second of wall time: the
    servers have a thread for every core, so each of their steps meets the neighbour."""
    def speed():
        return load.run(url, model, pid, 1, 1, 16, 96, 0)["output_tokens_per_s"]

    undisturbed = speed()
    core = max(os.sched_getaffinity(0))
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                              preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        time.sleep(0.5)
        disturbed = speed()
    finally:
        burner.kill()
        burner.wait()
    return {"undisturbed_tok_s": undisturbed, "disturbed_tok_s": disturbed, "kept": disturbed / undisturbed}


SCENES = {
    "interfere": ("long prompts while 4 streams run", load.interfere),
    "prefix": ("400 shared + 40 new tokens", load.prefix),
    "neighbour": ("a neighbour burns one of the cores", neighbour),
}
WHOLE_MACHINE = {"neighbour"}  # cases that want a thread for every core


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_healthy(port, process, limit=120):
    until = time.time() + limit
    while time.time() < until:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.01)
    raise SystemExit("the server did not become healthy")


def start_gristmill(args, port, log):
    command = [args.gristmill, "serve", args.model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--threads", str(args.threads), "--max-num-seqs", str(args.slots), "--max-model-len", str(args.context)]
    command += ["--served-model-name", "bench", "--enable-prompt-tokens-details", *args.flags.split()]
    return subprocess.Popen(command, stdout=log, stderr=log)


def start_llama(args, port, log):
    script = pathlib.Path(__file__).with_name("llama_server.py")
    command = [sys.executable, str(script), args.model, str(port), str(args.slots), str(args.threads), str(args.context)]
    return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "OMP_WAIT_POLICY": "passive"})


def machine():
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}"


def measure(case, url, pid):
    if case in SCENES:
        return SCENES[case][1](url, "bench", pid)
    concurrency, requests, prompt, output, shared, _ = CASES[case]
    return load.run(url, "bench", pid, concurrency, requests, prompt, output, shared)


def report(cases, servers, figures):
    print("\n| case | server | tok/CPU s | ratio | wall tok/s | TTFT p50 ms | gap p50 ms | gap p99 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in [c for c in cases if c in CASES]:
        headline = CASES[case][5]
        for name in servers:
            runs = figures[(case, name)]
            middle = lambda key: statistics.median(r[key] for r in runs)
            ratio = ""
            if name == "gristmill" and "llama.cpp" in servers:
                ratio = "%.2f" % statistics.median(
                    a[headline] / b[headline] for a, b in zip(runs, figures[(case, "llama.cpp")]))
            print(f"| {case} | {name} | {middle(headline):.0f} | {ratio} | "
                  f"{middle(headline.replace('_cpu_s', '_s')):.0f} | {middle('ttft_p50_ms'):.0f} | "
                  f"{middle('gap_p50_ms'):.1f} | {middle('gap_p99_ms'):.1f} |")
    for case in [c for c in cases if c in SCENES]:
        for name in servers:
            runs = figures[(case, name)]
            middle = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
            print(f"{name}: {SCENES[case][0]}: " + ", ".join(f"{key} {value:.3g}" for key, value in middle.items()))
        if case == "neighbour" and {"gristmill", "llama.cpp"} <= set(servers):
            pairs = zip(figures[(case, "gristmill")], figures[(case, "llama.cpp")])
            print("disturbed, gristmill / llama.cpp: %.2f"
                  % statistics.median(a["disturbed_tok_s"] / b["disturbed_tok_s"] for a, b in pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gristmill", default="build/release/gristmill")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--context", type=int, default=2304)
    parser.add_argument("--flags", default="", help="more flags for gristmill")
    parser.add_argument("--cases", default=",".join(case for case in [*CASES, *SCENES] if case not in WHOLE_MACHINE))
    parser.add_argument("--only", choices=["gristmill", "llama.cpp"])
    args = parser.parse_args()
    cases = args.cases.split(",")
    cores = len(os.sched_getaffinity(0))
    if WHOLE_MACHINE & set(cases) and args.threads != cores:
        parser.error(f"{', '.join(WHOLE_MACHINE & set(cases))}: wants a thread for every core, --threads {cores}")

    import xllamacpp

    print(f"machine: {machine()}")
    print(f"llama.cpp: xllamacpp {xllamacpp.__version__ if hasattr(xllamacpp, '__version__') else ''} "
          f"{xllamacpp.get_system_info()}")
    print(f"gristmill: {subprocess.run([args.gristmill, '--version'], capture_output=True, text=True).stdout.strip()}, "
          f"GRISTMILL_ISA={os.environ.get('GRISTMILL_ISA', 'best')}, {args.threads} thread(s)")
    servers = {}
    log = open("bench-peers.log", "w")
    try:
        for name, start in (("gristmill", start_gristmill), ("llama.cpp", start_llama)):
            if args.only and name != args.only:
                continue
            port = free_port()
            began = time.perf_counter()
            process = start(args, port, log)
            servers[name] = (port, process)
            wait_healthy(port, process)
            print(f"{name}: healthy after {time.perf_counter() - began:.2f} s, "
                  f"{load.cpu_seconds(process.pid):.2f} CPU s, {load.resident_bytes(process.pid) / 2**20:.0f} MiB")
        figures = {}
        for round_number in range(args.rounds + 1):  # the first round warms up
            for case in cases:
                for name, (port, process) in servers.items():
                    result = measure(case, f"http://127.0.0.1:{port}", process.pid)
                    if round_number > 0:
                        figures.setdefault((case, name), []).append(result)
        report(cases, servers, figures)
        for name, (port, process) in servers.items():
            print(f"{name}: {load.resident_bytes(process.pid) / 2**20:.0f} MiB at the end")
        if "gristmill" in servers:
            print(f"gristmill: {load.host_overhead(servers['gristmill'][0])}")
    finally:
        for _, process in servers.values():
            process.send_signal(signal.SIGTERM)
        for _, process in servers.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    main()
