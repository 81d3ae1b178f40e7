#!/usr/bin/env python3
"""Writes what transformers computes in float32 on the dequantized weights of a llama GGUF file.

    make_llama_golden.py SmolLM2-135M-Instruct.Q4_1.gguf   -> smollm2_golden.safetensors
    make_llama_golden.py tiny_llama.gguf                   -> tiny_llama_golden.safetensors

Tensors of the result (T tokens, L layers, H width, V tokens in the vocabulary):
    hidden.ids [T], hidden.states [L + 1, T, H]      one short prompt; 0 = embeddings, i + 1 = after layer i
    logits.N.ids [T]                                 some texts
    logits.N.sampled [T, len(columns)]               every position, at the vocabulary ids of `logits.columns`
    logits.N.last [V]                                the last position, whole (for the first three)
    greedy.N.prompt, greedy.N.ids, greedy.N.margin   chat prompts, their continuation, smallest lead of the best token
Metadata: `source` (SHA-256 of the model file), `greedy.N` (the user's message), `logits.N` (the text).

Needs: numpy, torch, transformers, tokenizers, safetensors, jinja2, gguf (the Python package).
"""
import hashlib
import pathlib
import sys

import gguf
import jinja2
import numpy
import safetensors.numpy
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).parent
HIDDEN_TEXT = "The river turns the wheel of"
TEXTS = [
    "Water boils at a lower temperature on a mountain, because the pressure of the air falls with height.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 40))",
    "First the miller opens the gate; then the wheel begins to turn, slowly, and the stones start to sing.",
    "Zürich, 17 août: «déjà vu» costs 3.50 €, naïvely counted.",
]
CHATS = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain how a water wheel works.",
    "Give me three tips for sleeping better.",
    "How do plants make their food?",
    "Tell me a story about a lost dog.",
    "What is the difference between a lake and a river?",
    "Write a Python function that adds two numbers.",
    "Why is the sky blue?",
    "How do I bake bread at home?",
    "Describe the city of Rome in two sentences.",
    "What should I pack for a trip to the mountains?",
    "Who invented the telephone?",
    "List the planets of the solar system.",
]
KEPT_CHATS, KEPT_CHATS_TINY = 10, 6
NEW_TOKENS = 32
LEAST_MARGIN = 0.02  # a continuation with a closer call tests rounding, not the model


def read_model(path):
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {t.name: torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).astype(numpy.float32).copy())
               for t in reader.tensors}
    return fields, tensors


def build(fields, tensors):
    heads, kv_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    config = transformers.LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings="output.weight" not in tensors,
        attn_implementation="eager",
        torch_dtype=torch.float32,
    )

    def half_split(w, n):  # GGUF has the rows of a head in adjacent pairs, transformers in halves
        return w.reshape(n, w.shape[0] // n // 2, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)

    state = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    state["lm_head.weight"] = tensors.get("output.weight", tensors["token_embd.weight"])
    for i in range(config.num_hidden_layers):
        def take(name):
            return tensors[f"blk.{i}.{name}.weight"]
        state |= {f"model.layers.{i}.{name}.weight": value for name, value in {
            "input_layernorm": take("attn_norm"),
            "self_attn.q_proj": half_split(take("attn_q"), heads),
            "self_attn.k_proj": half_split(take("attn_k"), kv_heads),
            "self_attn.v_proj": take("attn_v"),
            "self_attn.o_proj": take("attn_output"),
            "post_attention_layernorm": take("ffn_norm"),
            "mlp.gate_proj": take("ffn_gate"),
            "mlp.up_proj": take("ffn_up"),
            "mlp.down_proj": take("ffn_down"),
        }.items()}
    model = transformers.LlamaForCausalLM(config).to(torch.float32).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and not missing, (missing, unexpected)
    return model


def make_tokenizer(fields):
    """The file's byte-level BPE, digits split singly (the "smollm" pre-tokenizer)."""
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


@torch.inference_mode()
def hidden_states(model, ids):
    states = []
    hooks = [module.register_forward_hook(
        lambda _, __, out: states.append((out[0] if isinstance(out, tuple) else out)[0].numpy().copy()))
        for module in [model.model.embed_tokens, *model.model.layers]]
    model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return numpy.stack(states)


@torch.inference_mode()
def greedy(model, prompt, ends):
    ids, margin = list(prompt), float("inf")
    for _ in range(NEW_TOKENS):
        best = torch.topk(model(torch.tensor([ids])).logits[0, -1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
        if ids[-1] in ends:
            break
    return ids[len(prompt):], margin


def main():
    path = pathlib.Path(sys.argv[1])
    fields, tensors = read_model(path)
    model, encode = build(fields, tensors), make_tokenizer(fields)
    tiny = path.name.startswith("tiny")
    i32 = lambda ids: numpy.array(ids, dtype=numpy.int32)
    out, metadata = {}, {"source": hashlib.sha256(path.read_bytes()).hexdigest()}

    ids = encode(HIDDEN_TEXT)[:6]
    out["hidden.ids"], out["hidden.states"] = i32(ids), hidden_states(model, ids)

    vocabulary = fields["llama.vocab_size"]
    columns = numpy.arange(0, vocabulary, 1 if tiny else 61)
    out["logits.columns"] = i32(columns)
    for n, text in enumerate(TEXTS):
        ids = encode(text)
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0].numpy()
        metadata[f"logits.{n}"] = text
        out[f"logits.{n}.ids"], out[f"logits.{n}.sampled"] = i32(ids), logits[:, columns].copy()
        if n < 3 and not tiny:
            out[f"logits.{n}.last"] = logits[-1].copy()

    template = jinja2.Environment().from_string(fields["tokenizer.chat_template"])
    ends = {fields["tokenizer.ggml.eos_token_id"]}
    kept, wanted = 0, KEPT_CHATS_TINY if tiny else KEPT_CHATS
    for chat in CHATS:
        prompt = encode(template.render(messages=[{"role": "user", "content": chat}], add_generation_prompt=True))
        ids, margin = greedy(model, prompt, ends)
        print(f"{len(prompt)} + {len(ids)} tokens, margin {margin:.4f}: {chat}")
        if margin < LEAST_MARGIN or kept == wanted:
            continue
        metadata[f"greedy.{kept}"] = chat
        out[f"greedy.{kept}.prompt"], out[f"greedy.{kept}.ids"] = i32(prompt), i32(ids)
        out[f"greedy.{kept}.margin"] = numpy.array([margin], dtype=numpy.float32)
        kept += 1
    assert kept == wanted
    name = "tiny_llama_golden" if tiny else "smollm2_golden"
    safetensors.numpy.save_file(out, HERE / f"{name}.safetensors", metadata)


main()
