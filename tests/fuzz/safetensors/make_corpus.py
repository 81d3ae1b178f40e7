#!/usr/bin/env python3
"""Writes the seeds of fuzz_safetensors: small whole files of several types, and files that are wrong in one way each."""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I8": 1, "I32": 4, "BOOL": 1}


def file_of(tensors, metadata=None, shift=0, tail=b"", header_length=None):
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at + shift, at + size + shift]}
        at += size
    text = json.dumps(header).encode()
    length = len(text) if header_length is None else header_length
    return struct.pack("<Q", length) + text + bytes(i * 37 % 251 for i in range(at)) + tail


CORPUS.mkdir(exist_ok=True)
matrix = {"w": ("BF16", [3, 4]), "v": ("F32", [5])}
seeds = {
    "plain": file_of(matrix, {"format": "pt"}),
    "types": file_of({name: (name, [2, 3]) for name in SIZES}),
    "fp8": file_of({"w": ("F8_E4M3", [4, 6]), "w_scale_inv": ("F32", [2, 2])}),
    "scalar": file_of({"s": ("F32", []), "e": ("F16", [0, 3])}),
    "three_dimensions": file_of({"w": ("F16", [2, 3, 4])}),
    "empty": file_of({}),
    "hole": file_of(matrix, shift=2),
    "tail": file_of(matrix, tail=b"rest"),
    "cut": file_of(matrix)[:-1],
    "long_header": file_of(matrix, header_length=1 << 60),
    "short_header": file_of(matrix, header_length=9),
}
for name, data in seeds.items():
    (CORPUS / name).write_bytes(data)
