#!/usr/bin/env python3
"""Writes tiny random Hugging Face checkpoints of every architecture, and what transformers computes for them.

    make_hf_families.py        -> hf/NAME/{config.json, model*.safetensors, golden.safetensors}

golden.safetensors, for each prompt P (T tokens, L layers, H width, V tokens in the vocabulary):
    P.input_ids i32 [T], P.logits f32 [T, V]
    P.greedy_ids i32 [16], P.greedy_margin f32 [16]   continuation, and the lead of its tokens
    P.hidden f32 [L + 1, T, H]                        embeddings, and the residual stream after each layer
    P.route_ids i32 [layers with experts, T, k]       chosen experts (in any order)
Weights are stored in bfloat16 (some in float32), the references are computed in float32 on the stored values. Seeds are
tried until no continuation and no choice of experts hangs on a close call.

Needs: numpy, torch, transformers 5, safetensors.
"""
import json
import pathlib
import shutil

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).parent / "hf"
VOCABULARY = 96
PROMPTS = {"p5": 5, "p40": 40}
NEW_TOKENS = 16
# Keys of transformers' config objects that say nothing about the computation.
NO_KEYS = ("chunk_size_feed_forward", "id2label", "label2id", "is_encoder_decoder", "output_attentions",
           "output_hidden_states", "output_router_logits", "return_dict", "router_aux_loss_coef", "router_jitter_noise",
           "transformers_version", "initializer_range", "attention_dropout", "dtype", "problem_type")
LEAST_MARGIN, LEAST_ROUTE_MARGIN = 0.03, 2e-4

BASE = dict(vocab_size=VOCABULARY, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
            max_position_embeddings=512, rms_norm_eps=1e-6, bos_token_id=None, eos_token_id=None, pad_token_id=None,
            tie_word_embeddings=False)
GDN = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
           linear_conv_kernel_dim=4)


def per_expert(tensors, names):
    """Fused experts to one tensor per expert and matrix."""
    out = {}
    for name, tensor in tensors.items():
        if name.endswith(".experts.gate_up_proj"):
            half = tensor.shape[1] // 2
            for e, matrix in enumerate(tensor):
                stem = f"{name.removesuffix('gate_up_proj')}{e}."
                out[f"{stem}{names[0]}.weight"], out[f"{stem}{names[1]}.weight"] = matrix[:half], matrix[half:]
        elif name.endswith(".experts.down_proj"):
            for e, matrix in enumerate(tensor):
                out[f"{name.removesuffix('down_proj')}{e}.{names[2]}.weight"] = matrix
        else:
            out[name] = tensor
    return out


def minimax_names(tensors):
    tensors = {name.replace(".mlp.", ".block_sparse_moe."): tensor for name, tensor in tensors.items()}
    tensors = {name.replace("gate.e_score", "e_score"): tensor for name, tensor in tensors.items()}
    return per_expert(tensors, ("w1", "w3", "w2"))


def nested_names(tensors):
    """The text tower of a model with a vision tower and a draft head, of which two tensors stand for all."""
    out = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()}
    out["model.visual.pos_embed.weight"] = torch.ones(4, 8)
    out["mtp.norm.weight"] = torch.ones(32)
    return out


def fp8_blocks(tensors, block):
    """Every matrix of a layer but the router as FP8 blocks; edge blocks are cropped. Changes `tensors` to the product."""
    stored = {}
    for name, tensor in list(tensors.items()):
        if tensor.dim() != 2 or ".gate." in name or "layers" not in name:
            continue
        rows, columns = (-(-n // block) for n in tensor.shape)
        scale = torch.empty(rows, columns)
        codes = torch.empty(tensor.shape, dtype=torch.float8_e4m3fn)
        for r in range(rows):
            for c in range(columns):
                at = (slice(r * block, (r + 1) * block), slice(c * block, (c + 1) * block))
                scale[r, c] = tensor[at].abs().max() / 448
                codes[at] = (tensor[at] / scale[r, c]).to(torch.float8_e4m3fn)
                tensors[name][at] = codes[at].float() * scale[r, c]
        stored[name], stored[name + "_scale_inv"] = codes, scale
    return stored


def initialise(model, generator):
    zero_centred = "Qwen3_5" in type(model).__name__
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator)
        if name.endswith("A_log"):
            value = torch.rand(tensor.shape, generator=generator) * 1.5 - 1
        elif name.endswith("linear_attn.norm.weight"):
            value = 1 + 0.2 * noise
        elif "norm" in name:
            value = 0.2 * noise + (0 if zero_centred else 1)
        elif name.endswith("e_score_correction_bias"):
            value = 0.1 * noise
        elif name.endswith(("bias", "dt_bias")):
            value = 0.3 * noise
        elif "conv1d" in name:
            value = 0.5 * noise
        elif "embed_tokens" in name:
            value = noise * 0.5
        elif name.endswith("gate.weight"):
            value = noise * 0.4
        else:
            value = noise * 1.4 / tensor.shape[-1] ** 0.5
        keep_f32 = name.endswith(("A_log", "linear_attn.norm.weight", "e_score_correction_bias"))
        tensor.copy_(value if keep_f32 else value.bfloat16().float())
    if model.config.tie_word_embeddings:
        model.tie_weights()


def expert_blocks(model):
    return [m for m in model.modules() if type(m).__name__.endswith(("SparseMoeBlock", "MoeBlock"))]


def reference(model, ids):
    """Logits, hidden states and chosen experts of all tokens; the closest choice of an expert."""
    routes, closest = [], [float("inf")]

    def watch(block):
        def hook(_, inputs, output):
            x = inputs[0].reshape(-1, inputs[0].shape[-1])
            logits = torch.nn.functional.linear(x, block.gate.weight)
            bias = getattr(block, "e_score_correction_bias", None)
            scores = logits.softmax(-1) if bias is None else logits.sigmoid() + bias
            k = block.gate.top_k if hasattr(block.gate, "top_k") else block.top_k
            top = scores.topk(k + 1, dim=-1)
            closest[0] = min(closest[0], float((top.values[:, k - 1] - top.values[:, k]).min()))
            routes.append(top.indices[:, :k].int())
        return block.register_forward_hook(hook)

    handles = [watch(block) for block in expert_blocks(model)]
    streams = []
    layers = model.model.layers
    handles.append(layers[0].register_forward_pre_hook(
        lambda _, i, k: streams.append((i[0] if i else k["hidden_states"])[0]), with_kwargs=True))
    for layer in layers:
        handles.append(layer.register_forward_hook(
            lambda _, i, o: streams.append((o[0] if isinstance(o, tuple) else o).reshape(len(ids), -1))))
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    return logits, torch.stack(streams), torch.stack(routes) if routes else None, closest[0]


def golden(model, generator):
    out, margin, route_margin = {}, float("inf"), float("inf")
    for prompt, length in PROMPTS.items():
        ids = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
        logits, hidden, routes, closest = reference(model, ids)
        route_margin = min(route_margin, closest)
        out[f"{prompt}.input_ids"] = torch.tensor(ids, dtype=torch.int32)
        out[f"{prompt}.logits"] = logits
        out[f"{prompt}.hidden"] = hidden
        if routes is not None:
            out[f"{prompt}.route_ids"] = routes
        text, margins = list(ids), []
        for _ in range(NEW_TOKENS):
            row, _, _, closest = reference(model, text)
            top = row[-1].topk(2)
            margins.append(float(top.values[0] - top.values[1]))
            text.append(int(top.indices[0]))
            route_margin = min(route_margin, closest)
        margin = min(margin, *margins)
        if margin < LEAST_MARGIN or route_margin < LEAST_ROUTE_MARGIN:
            break  # this seed is of no use
        out[f"{prompt}.greedy_ids"] = torch.tensor(text[length:], dtype=torch.int32)
        out[f"{prompt}.greedy_margin"] = torch.tensor(margins)
    return out, margin, route_margin


def write(name, config_class, model_class, settings, rename=lambda t: t, config_changes=None, nest=None, fp8=None,
          shards=1):
    for seed in range(1000):
        generator = torch.Generator().manual_seed(seed)
        config = config_class(**{**BASE, **settings})
        config._attn_implementation = "eager"
        model = model_class(config).eval().float()
        with torch.no_grad():
            initialise(model, generator)
            stored = {n: t for n, t in model.state_dict().items()
                      if not (config.tie_word_embeddings and n == "lm_head.weight")}
            tensors = rename(stored)
            codes = {}
            if fp8:
                # The views of fused tensors are changed in place, so that the model computes with the product.
                codes = fp8_blocks(tensors, fp8)
            outputs, margin, route_margin = golden(model, generator)
        if margin > LEAST_MARGIN and route_margin > LEAST_ROUTE_MARGIN:
            break
    else:
        raise SystemExit(f"{name}: no seed without close calls")
    keep_f32 = ("A_log", "linear_attn.norm.weight", "e_score_correction_bias")
    tensors = {n: t.contiguous().clone() if n.endswith(keep_f32) else t.bfloat16().contiguous().clone()
               for n, t in tensors.items()}
    tensors.update({n: t.contiguous() for n, t in codes.items()})
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = sorted(tensors)
    if shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
    else:
        index = {}
        for s in range(shards):
            part = f"weights-{s + 1:05}-of-{shards:05}.safetensors"
            own = names[s::shards]
            safetensors.torch.save_file({n: tensors[n] for n in own}, folder / part)
            index.update({n: part for n in own})
        (folder / "weights.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": index}, indent=0))
    text = {k: v for k, v in config.to_dict().items() if v is not None and not k.startswith("_") and k not in NO_KEYS}
    text["architectures"] = [model_class.__name__]
    text.update(config_changes or {})
    if nest:
        text = {"architectures": [nest], "model_type": text["model_type"].removesuffix("_text"),
                "tie_word_embeddings": text["tie_word_embeddings"], "text_config": text, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    safetensors.torch.save_file({n: t.contiguous() for n, t in outputs.items()}, folder / "golden.safetensors")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: seed {seed}, margin {margin:.3f}, experts {route_margin:.1e}, {size // 1000} kB")


def main():
    t = transformers
    rope = lambda **k: dict(rope_parameters=dict(rope_theta=10000.0, **k))
    write("llama", t.LlamaConfig, t.LlamaForCausalLM, dict(
        intermediate_size=48, **rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=32)))
    write("mistral", t.MistralConfig, t.MistralForCausalLM, dict(
        intermediate_size=48, head_dim=16, sliding_window=None,
        **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)))
    write("qwen2", t.Qwen2Config, t.Qwen2ForCausalLM, dict(
        intermediate_size=48, tie_word_embeddings=True, **rope(rope_type="linear", factor=2.0)))
    write("qwen3", t.Qwen3Config, t.Qwen3ForCausalLM, dict(
        intermediate_size=48, head_dim=16, tie_word_embeddings=True, **rope(rope_type="default")))
    write("qwen3_moe", t.Qwen3MoeConfig, t.Qwen3MoeForCausalLM, dict(
        intermediate_size=48, head_dim=16, num_hidden_layers=3, moe_intermediate_size=20, num_experts=6,
        num_experts_per_tok=2, norm_topk_prob=False, mlp_only_layers=[1], **rope(rope_type="default")),
        rename=lambda x: per_expert(x, ("gate_proj", "up_proj", "down_proj")), shards=2)
    partial = rope(rope_type="default", partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True)
    write("qwen3_5", t.Qwen3_5TextConfig, t.Qwen3_5ForCausalLM, dict(
        intermediate_size=48, head_dim=16, num_hidden_layers=4, tie_word_embeddings=True, **GDN, **partial))
    write("qwen3_5_moe", t.Qwen3_5MoeTextConfig, t.Qwen3_5MoeForCausalLM, dict(
        head_dim=16, num_hidden_layers=4, moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts=6,
        num_experts_per_tok=2, **GDN, **partial), rename=nested_names, nest="Qwen3_5MoeForConditionalGeneration")
    minimax = dict(head_dim=16, intermediate_size=20, num_local_experts=6, num_experts_per_tok=2,
                   **rope(rope_type="default", partial_rotary_factor=0.5))
    write("minimax_m2", t.MiniMaxM2Config, t.MiniMaxM2ForCausalLM, minimax, rename=minimax_names)
    write("minimax_m2_fp8", t.MiniMaxM2Config, t.MiniMaxM2ForCausalLM, minimax, rename=minimax_names, fp8=24,
          config_changes={"quantization_config": {"quant_method": "fp8", "weight_block_size": [24, 24]}})


main()
