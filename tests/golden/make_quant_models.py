#!/usr/bin/env python3
"""Writes tiny quantized checkpoints made of those in hf/, and what their linears give.

    make_quant_models.py       -> quant/NAME/{config.json, *.safetensors, [quant_model_description.json], expected/}

expected/linears.safetensors: x.K f32 [4, K] for every width K (the second row is zero), and for the linear X of the
model X.y f32 [4, N] in the order of operations of docs/architecture.md ("Numbers"), so that it can be compared bit for
bit; X.exact = 1 where it is so, 0 for weight-only formats.

The formats: ascend_llama mixes all types of msmodelslim's "ascend" checkpoints, ascend_qwen3_moe has experts one by one
with int4 packed along rows; fp8_llama and int8_llama are compressed-tensors.  Needs: numpy, torch, safetensors.
"""
import json
import pathlib

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
F = np.float32


def load(name):
    folder = HERE / "hf" / name
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        if path.name != "golden.safetensors":
            tensors.update(safetensors.torch.load_file(path))
    return json.loads((folder / "config.json").read_text()), tensors


def rows_to_int(w, most):
    scale = np.maximum(np.abs(w).max(axis=1, keepdims=True) / F(most), F(2**-23)).astype(F)
    return scale, np.clip(np.rint(w / scale), -most - 1, most).astype(np.int8)


def quantize_rows(x):
    scale = (np.abs(x).max(axis=1, keepdims=True) / F(127)).astype(F)
    codes = np.where(scale > 0, np.rint(x / np.where(scale > 0, scale, 1)), 0)
    return scale, np.clip(codes, -127, 127).astype(np.int64)


def dynamic(x, codes, scale, bias=None):
    x_scale, x_codes = quantize_rows(x)
    y = ((x_codes @ codes.astype(np.int64).T).astype(F) * scale.reshape(1, -1)) * x_scale
    return (y + bias).astype(F) if bias is not None else y.astype(F)


def pack_pairs(codes):
    low, high = codes[0::2].astype(np.uint8) & 15, codes[1::2].astype(np.uint8) & 15
    return (low | high << 4).astype(np.uint8).view(np.int8)


def grouped(x, codes, scales, group):
    x_scale, x_codes = quantize_rows(x)
    acc = np.zeros((x.shape[0], codes.shape[0]), np.float64)
    for g in range(scales.shape[1]):
        part = slice(g * group, (g + 1) * group)
        sums = x_codes[:, part] @ codes[:, part].astype(np.int64).T
        # a fused multiply-add in float32: the product of two floats is exact in float64 and so is the sum here
        acc = (sums.astype(F).astype(np.float64) * scales[:, g].astype(np.float64) + acc).astype(F).astype(np.float64)
    return (acc.astype(F) * x_scale).astype(F)


class Model:
    def __init__(self, source, name):
        self.config, self.floats = load(source)
        self.folder = HERE / "quant" / name
        self.tensors, self.types, self.expected = {}, {}, {}
        self.random = np.random.default_rng(7)
        self.x = {}

    def inputs(self, width):
        if width not in self.x:
            x = self.random.standard_normal((4, width)).astype(F)
            x[1] = 0
            self.x[width] = x
        return self.x[width]

    def put(self, base, kind, parts, y, exact=1):
        for part, tensor in parts.items():
            self.tensors[f"{base}.{part}"] = torch.from_numpy(np.ascontiguousarray(tensor))
            self.types[f"{base}.{part}"] = "FLOAT" if part == "bias" else kind
        self.expected[f"{base}.y"] = y
        self.expected[f"{base}.exact"] = np.array([exact], np.int32)

    def quantize(self, base, kind, group=0):
        w = self.floats.pop(f"{base}.weight").float().numpy()
        x = self.inputs(w.shape[1])
        zeros = np.zeros((w.shape[0], 1), F)
        if kind == "W8A16 without offsets":
            scale, codes = rows_to_int(w, 127)
            parts = {"weight": codes, "weight_scale": scale, "weight_offset": zeros}
            return self.put(base, "W8A16", parts, (x @ (codes * scale).astype(F).T).astype(F), 0)
        if kind in ("W8A8_DYNAMIC", "W8A8_MIX", "W8A16"):
            scale, codes = rows_to_int(w, 127)
            codes[0, 0] = -128  # other tools use the whole range
            parts = {"weight": codes, "weight_scale": scale, "weight_offset": zeros}
            if kind == "W8A16":
                offset = self.random.integers(-3, 4, scale.shape).astype(F)
                parts["weight_offset"] = offset
                return self.put(base, kind, parts, (x @ ((codes - offset) * scale).astype(F).T).astype(F), 0)
            if kind == "W8A8_MIX":
                parts.update(input_scale=np.array([0.02], F), input_offset=np.array([3], F),
                             deq_scale=(scale[:, 0] * F(0.02)).astype(F), quant_bias=np.zeros(w.shape[0], np.int32))
            return self.put(base, kind, parts, dynamic(x, codes, scale))
        if kind == "W8A8":
            scale, codes = rows_to_int(w, 127)
            low, high = min(float(x.min()), 0.0) * 0.9, max(float(x.max()), 0.0) * 0.8  # so that some are clipped
            in_scale = F(high / 255 - low / 255)
            offset = F(np.rint(-low / float(in_scale)) - 128)
            deq = (in_scale * scale[:, 0]).astype(F)
            bias = self.random.standard_normal(w.shape[0]).astype(F)
            quant_bias = np.rint(bias / deq - float(offset) * codes.astype(np.int64).sum(axis=1)).astype(np.int32)
            x_codes = np.clip(np.rint(x / in_scale + offset), -128, 127).astype(np.int64)
            y = ((x_codes @ codes.astype(np.int64).T + quant_bias).astype(F) * deq).astype(F)
            as_int64 = deq.view(np.int32).astype(np.int64)
            return self.put(base, kind, {"weight": codes, "input_scale": np.array([in_scale], F),
                                         "input_offset": np.array([offset], F), "deq_scale": as_int64,
                                         "quant_bias": quant_bias, "bias": bias}, y)
        scale, codes = rows_to_int(w, 7)
        if kind == "W4A8_DYNAMIC" and group == 0:
            codes[0, :2] = -8
            parts = {"weight": pack_pairs(codes), "weight_scale": scale, "weight_offset": zeros,
                     "scale_bias": (8 * (codes * scale).sum(axis=1, keepdims=True)).astype(F)}
            return self.put(base, kind, parts, dynamic(x, codes, scale))
        first, codes8 = rows_to_int(w, 127)
        groups = w.shape[1] // group
        blocks = codes8.reshape(-1, group).astype(F)
        second, codes = rows_to_int(blocks, 7)
        second, codes = second.reshape(-1, groups), codes.reshape(w.shape)
        parts = {"weight": codes, "weight_scale": first, "weight_offset": zeros, "weight_scale_second": second,
                 "weight_offset_second": np.zeros_like(second)}
        self.put(base, kind, parts, grouped(x, codes, (second * first).astype(F), group))

    def write(self, description=None, config=None):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "expected").mkdir(exist_ok=True)
        for name, tensor in self.floats.items():
            self.tensors[name] = tensor
            self.types[name] = "FLOAT"
        self.config.update(config or {})
        (self.folder / "config.json").write_text(json.dumps(self.config, indent=1) + "\n")
        stem = "model"
        if description is not None:
            stem = "quant_model_weights-00001-of-00001"
            text = json.dumps({**self.types, **description}, indent=1)
            (self.folder / "quant_model_description.json").write_text(text + "\n")
        safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(self.tensors.items())},
                                    self.folder / f"{stem}.safetensors")
        self.expected.update({f"x.{width}": x for width, x in self.x.items()})
        safetensors.numpy.save_file(self.expected, self.folder / "expected" / "linears.safetensors")


def ascend_llama():
    model = Model("llama", "ascend_llama")
    layer = "model.layers.0."
    for name, kind, group in [("self_attn.q_proj", "W8A8_DYNAMIC", 0), ("self_attn.k_proj", "W8A8", 0),
                              ("self_attn.o_proj", "W4A8_DYNAMIC", 0), ("mlp.gate_proj", "W4A8_DYNAMIC", 16),
                              ("mlp.up_proj", "W8A16", 0), ("mlp.down_proj", "W8A8_MIX", 0)]:
        model.quantize(layer + name, kind, group)
    model.quantize("lm_head", "W8A8_DYNAMIC")
    model.quantize("model.layers.1.mlp.up_proj", "W8A16 without offsets")
    model.write({"version": "0", "model_quant_type": "W8A8_DYNAMIC", "group_size": 16, "metadata": {}, "optional": {}})


def ascend_qwen3_moe():
    model = Model("qwen3_moe", "ascend_qwen3_moe")
    for name in [n for n in model.floats if n.endswith(".weight")]:
        base = name.removesuffix(".weight")
        if ".experts." in name:
            model.quantize(base, "W4A8_DYNAMIC")
        elif "_proj" in name and "o_proj" not in name:
            model.quantize(base, "W8A8_DYNAMIC")
    model.write({"version": "1.0.0", "model_quant_type": "W8A8_DYNAMIC", "group_size": 0})


def compressed(name, fp8):
    model = Model("llama", name)
    for key in [n for n in model.floats if n.endswith("_proj.weight")]:
        base = key.removesuffix(".weight")
        if not fp8:
            w = model.floats.pop(key).float().numpy()
            scale, codes = rows_to_int(w, 127)
            scale = torch.from_numpy(scale).bfloat16()
            codes = np.clip(np.rint(w / scale.float().numpy()), -128, 127).astype(np.int8)
            y = dynamic(model.inputs(w.shape[1]), codes, scale.float().numpy())
            model.put(base, "", {"weight": codes}, y)
            model.tensors[f"{base}.weight_scale"] = scale
            continue
        w = model.floats.pop(key).float()
        whole = "down_proj" in base
        peak = w.abs().amax() if whole else w.abs().amax(dim=1, keepdim=True)
        scale = (peak / 448).float()
        codes = (w / scale).to(torch.float8_e4m3fn)
        deq = (codes.float() * scale).numpy()
        x = model.inputs(w.shape[1])
        model.expected[f"{base}.y"], model.expected[f"{base}.exact"] = (x @ deq.T).astype(F), np.zeros(1, np.int32)
        model.tensors[f"{base}.weight"], model.tensors[f"{base}.weight_scale"] = codes, scale
    kind = "float" if fp8 else "int"
    group = {"weights": {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "channel", "dynamic": False},
             "input_activations": {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "token", "dynamic": True},
             "targets": ["Linear"]}
    model.write(config={"quantization_config": {"quant_method": "compressed-tensors", "format": f"{kind}-quantized",
                                                "config_groups": {"group_0": group}, "ignore": ["lm_head"]}})


ascend_llama()
ascend_qwen3_moe()
compressed("fp8_llama", True)
compressed("int8_llama", False)
