#!/usr/bin/env python3
"""Writes gguf_blocks.safetensors: random blocks of every GGUF type and their float32 values.

Tensors: TYPE.raw u8, TYPE.values f32. The values are those of the gguf package's numpy code.
Needs: numpy, gguf (the Python package), safetensors.
"""
import pathlib

import gguf
import numpy
import safetensors.numpy

TYPES = ("F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4").split()
# Byte offsets of the binary16 fields, which get scales of a plausible size (random bits would make infinities).
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def main():
    random = numpy.random.default_rng(11)
    out = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = 4 if elements == 256 else 12 if elements == 32 else 64
        raw = random.integers(0, 256, (blocks, size), dtype=numpy.uint8)
        for offset in HALVES.get(name, []):
            halves = (random.standard_normal(blocks) * 0.05).astype(numpy.float16)
            raw[:, offset:offset + 2] = halves.view(numpy.uint8).reshape(blocks, 2)
        if name == "MXFP4":
            raw[:, 0] = random.integers(110, 140, blocks)
            raw[:3, 0] = [0, 1, 254]
        if elements == 1:
            values = random.standard_normal(blocks).astype(numpy.float32)
            raw = gguf.quants.quantize(values, kind).view(numpy.uint8)
        raw = raw.reshape(-1)
        out[f"{name}.raw"] = raw
        values = raw.view(numpy.float32) if name == "F32" else gguf.dequantize(raw, kind)
        out[f"{name}.values"] = numpy.ascontiguousarray(values.astype(numpy.float32).reshape(-1))
    safetensors.numpy.save_file(out, pathlib.Path(__file__).parent / "gguf_blocks.safetensors")


main()
