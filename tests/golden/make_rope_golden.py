#!/usr/bin/env python3
"""Writes rope_golden.safetensors: rotary frequencies as transformers scales them.

Tensors: NAME.inv_freq [pairs], NAME.magnitude [1], NAME.cos and NAME.sin [4, pairs] at positions 0, 1000, 8192 and 60000,
and for llama3 the divisors [pairs] that GGUF files carry instead.
The settings behind each NAME are repeated in tests/model/rope_test.cpp.

Needs: numpy, torch, transformers, safetensors.
"""
import pathlib

import numpy
import safetensors.numpy
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CASES = {
    "linear": dict(dims=64, base=10000.0, rope_type="linear", factor=4.0),
    "yarn": dict(dims=128, base=1000000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768),
    "yarn_short": dict(dims=64, base=10000.0, rope_type="yarn", factor=16.0, original_max_position_embeddings=4096),
    "llama3": dict(dims=128, base=500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=8192),
    "yarn_attention_factor": dict(dims=8, base=10000.0, rope_type="yarn", factor=4.0, attention_factor=1.25,
                                  original_max_position_embeddings=32768),
    "yarn_mscale": dict(dims=8, base=10000.0, rope_type="yarn", factor=40.0, mscale=0.707, mscale_all_dim=1.0,
                        original_max_position_embeddings=4096),
}
POSITIONS = torch.tensor([0, 1000, 8192, 60000])


def main():
    out = {}
    for name, case in CASES.items():
        case = dict(case)
        dims, base = case.pop("dims"), case.pop("base")
        config = transformers.LlamaConfig(hidden_size=4 * dims, num_attention_heads=4, max_position_embeddings=131072,
                                          rope_parameters={"rope_theta": base, **case})
        inv_freq, magnitude = ROPE_INIT_FUNCTIONS[case["rope_type"]](config, torch.device("cpu"))
        out[f"{name}.inv_freq"] = inv_freq.numpy().astype(numpy.float32)
        out[f"{name}.magnitude"] = numpy.array([magnitude], dtype=numpy.float32)
        angles = POSITIONS[:, None].float() * inv_freq[None, :].float()
        out[f"{name}.cos"] = (angles.cos() * magnitude).numpy()
        out[f"{name}.sin"] = (angles.sin() * magnitude).numpy()
        if name == "llama3":
            plain = 1.0 / base ** (numpy.arange(0, dims, 2) / dims)
            out[f"{name}.divisors"] = (plain / inv_freq.numpy()).astype(numpy.float32)
    safetensors.numpy.save_file(out, pathlib.Path(__file__).parent / "rope_golden.safetensors")


main()
