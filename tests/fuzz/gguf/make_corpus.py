#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf: metadata of every type, a tensor of every type, and a small llama.

Needs: numpy, gguf (the Python package).
"""
import pathlib

import gguf
import numpy

FOLDER = pathlib.Path(__file__).parent / "corpus"
TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 I8 I32 F64".split()


def write(name, architecture, fill):
    writer = gguf.GGUFWriter(FOLDER / name, architecture)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def metadata(w):
    w.add_uint8("u8", 1)
    w.add_int8("i8", -1)
    w.add_uint16("u16", 2)
    w.add_int16("i16", -2)
    w.add_uint32("u32", 3)
    w.add_int32("i32", -3)
    w.add_float32("f32", 0.5)
    w.add_bool("bool", True)
    w.add_string("string", "text")
    w.add_uint64("u64", 1 << 40)
    w.add_int64("i64", -4)
    w.add_float64("f64", 1e300)
    w.add_array("strings", ["a", "", "bc"])
    w.add_array("numbers", [0.5, 1.5])
    w.add_array("integers", [1, 2, 3])
    w.add_custom_alignment(64)


def tensors(w):
    random = numpy.random.default_rng(1)
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        w.add_tensor(name, random.integers(0, 256, (1, max(size, 8)) if elements > 1 else (1, 4 * size),
                                           dtype=numpy.uint8), raw_dtype=kind)


def llama(w):
    hidden, ffn, vocabulary = 32, 32, 6
    w.add_context_length(64)
    w.add_embedding_length(hidden)
    w.add_block_count(1)
    w.add_feed_forward_length(ffn)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(2.0)

    def add(name, *shape):
        kind = gguf.GGMLQuantizationType.Q4_1 if len(shape) > 1 else gguf.GGMLQuantizationType.F32
        w.add_tensor(name, gguf.quants.quantize(numpy.full(shape, 0.5, numpy.float32), kind), raw_dtype=kind)

    add("token_embd.weight", vocabulary, hidden)
    add("output_norm.weight", hidden)
    add("rope_freqs.weight", 8)
    for name, *shape in [("attn_norm", hidden), ("attn_q", 32, hidden), ("attn_k", 16, hidden), ("attn_v", 16, hidden),
                         ("attn_output", hidden, 32), ("ffn_norm", hidden), ("ffn_gate", ffn, hidden),
                         ("ffn_up", ffn, hidden), ("ffn_down", hidden, ffn)]:
        add(f"blk.0.{name}.weight", *shape)
    add("blk.0.attn_q.bias", 32)


FOLDER.mkdir(exist_ok=True)
write("metadata.gguf", "llama", metadata)
write("tensors.gguf", "llama", tensors)
write("llama.gguf", "llama", llama)
