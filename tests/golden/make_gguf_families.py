#!/usr/bin/env python3
"""Writes the tiny checkpoints of hf/ as GGUF files, the way llama.cpp's converter lays these architectures out.

    make_gguf_families.py        -> gguf/NAME.gguf, to be compared with hf/NAME/golden.safetensors

Matrices are bfloat16, vectors and convolutions float32. There is no tokenizer inside: these files are for the model side. What differs
from the Hugging Face layout: names; experts of a layer in one tensor; Qwen3.5 stores its zero-centred norms plus one,
-exp(A_log), a convolution without its middle dimension, and value heads tiled (head h reads key head h % key heads)
instead of grouped.

Needs: numpy, torch, safetensors, gguf (the Python package). Same bytes on every run.
"""
import json
import pathlib

import gguf
import numpy
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
FAMILIES = {"qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "qwen3_5": "qwen35",
            "qwen3_5_moe": "qwen35moe", "minimax_m2": "minimax-m2"}

LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
    "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
}
LAYER.update({f"self_attn.{x}_proj.{kind}": f"attn_{x}.{kind}" for x in "qkv" for kind in ("weight", "bias")})
EXPERTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def tiled(tensor, dim, config, width, first=0):
    """The value heads of `width` along `dim`, from `first` on, from grouped to tiled order."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    order = list(range(first))
    for head in range(values):
        group, inside = head % keys, head // keys
        start = first + (group * (values // keys) + inside) * width
        order += range(start, start + width)
    return tensor.index_select(dim, torch.tensor(order))


def convert_qwen3_5(name, tensor, config):
    keys = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    width = config["linear_value_head_dim"]
    part = name.rpartition("linear_attn.")[2] if "linear_attn." in name else ""
    if part == "in_proj_qkv.weight":
        return tiled(tensor, 0, config, width, keys)
    if part == "in_proj_z.weight":
        return tiled(tensor, 0, config, width)
    if part in ("in_proj_b.weight", "in_proj_a.weight", "dt_bias"):
        return tiled(tensor, 0, config, 1)
    if part == "A_log":
        return -torch.exp(tiled(tensor, 0, config, 1))
    if part == "conv1d.weight":
        return tiled(tensor.squeeze(1), 0, config, width, keys)
    if part == "out_proj.weight":
        return tiled(tensor, 1, config, width)
    if name.endswith("norm.weight") and part != "norm.weight":
        return tensor + 1
    if name.endswith("shared_expert_gate.weight"):
        return tensor.squeeze(0)
    return tensor


def experts_of(tensors):
    """All experts' matrices of a layer as one tensor each for gate, up and down."""
    stacks, rest = {}, {}
    for name, tensor in tensors.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            layer = name.split(".layers.")[1].split(".")[0]
            if name.endswith("gate_up_proj"):
                half = tensor.shape[1] // 2
                rest[f"blk.{layer}.ffn_gate_exps.weight"] = tensor[:, :half]
                rest[f"blk.{layer}.ffn_up_exps.weight"] = tensor[:, half:]
            else:
                rest[f"blk.{layer}.ffn_down_exps.weight"] = tensor
        elif ".experts." in name:
            layer = name.split(".layers.")[1].split(".")[0]
            expert, matrix = name.split(".experts.")[1].split(".")[:2]
            stacks.setdefault(f"blk.{layer}.ffn_{EXPERTS[matrix]}_exps.weight", {})[int(expert)] = tensor
        else:
            rest[name] = tensor
    rest.update({name: torch.stack([parts[e] for e in sorted(parts)]) for name, parts in stacks.items()})
    return rest


def write(name, architecture):
    folder = HERE / "hf" / name
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        if file.name != "golden.safetensors":
            tensors.update(safetensors.torch.load_file(file))
    out = gguf.GGUFWriter(HERE / "gguf" / f"{name}.gguf", architecture)
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    if "intermediate_size" in config and architecture != "qwen35moe":
        out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(config["vocab_size"])
    rope = config["rope_parameters"]
    out.add_rope_freq_base(rope["rope_theta"])
    out.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if rope["rope_type"] == "linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(rope["factor"])
    experts = config.get("num_experts", config.get("num_local_experts"))
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(config["num_experts_per_tok"])
        out.add_expert_feed_forward_length(config.get("moe_intermediate_size", config.get("intermediate_size")))
    if architecture == "qwen3moe":
        out.add_expert_weights_norm(config["norm_topk_prob"])
    if architecture == "qwen35moe":
        out.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if architecture == "minimax-m2":
        out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if architecture.startswith("qwen35"):
        out.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        out.add_ssm_state_size(config["linear_key_head_dim"])
        out.add_ssm_group_count(config["linear_num_key_heads"])
        out.add_ssm_time_step_rank(config["linear_num_value_heads"])
        out.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
        out.add_full_attention_interval(4)

    for key, tensor in experts_of(tensors).items():
        if key.startswith(("model.visual.", "mtp.")):
            continue
        key = key.replace("model.language_model.", "model.")
        stem = key.removeprefix("model.")
        if architecture.startswith("qwen35"):
            tensor = convert_qwen3_5(key, tensor.float(), config).to(tensor.dtype if tensor.dim() > 1 else torch.float32)
        if stem.startswith("layers."):
            _, layer, rest = stem.split(".", 2)
            target = LAYER[rest]
            if architecture.startswith("qwen35") and target == "ffn_norm.weight":
                target = "post_attention_norm.weight"
            target = f"blk.{layer}.{target}"
        else:
            target = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
                      "lm_head.weight": "output.weight"}.get(stem, stem)
        if tensor.squeeze().dim() < 2 or tensor.dtype != torch.bfloat16 or "ssm_conv1d" in target:
            out.add_tensor(target, tensor.float().numpy())
        else:
            bits = tensor.contiguous().view(torch.int16).numpy().astype(numpy.int16)
            out.add_tensor(target, bits.view(numpy.uint8).reshape(*tensor.shape[:-1], -1),
                           raw_dtype=gguf.GGMLQuantizationType.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


(HERE / "gguf").mkdir(exist_ok=True)
for family, arch in FAMILIES.items():
    write(family, arch)
    print(family)
