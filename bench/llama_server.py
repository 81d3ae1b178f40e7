"""llama.cpp's own server, from PyPI's xllamacpp wheel, in a process of its own: llama_server.py MODEL PORT SLOTS THREADS CONTEXT"""
import sys
import time

import xllamacpp


def main():
    model, port, slots, threads, context = sys.argv[1], *(int(a) for a in sys.argv[2:6])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"] if hasattr(params, "hostnames") else []
    params.port = port
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = False
    params.warmup = True
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, xllamacpp.get_system_info(), flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
