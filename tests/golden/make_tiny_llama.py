#!/usr/bin/env python3
"""Writes tiny_llama.gguf: a llama model of random weights for tests that need some model, not a good one.

Three layers, width 96, 6 query and 2 key heads of 16, 512 tokens, and a different weight format wherever one can be. The
vocabulary is a byte-level BPE trained on the text below, with ChatML control tokens.

Needs: numpy, regex, gguf (the Python package). Same bytes on every run.
"""
import collections
import pathlib

import gguf
import numpy
import regex

HERE = pathlib.Path(__file__).parent
HIDDEN, HEADS, KV_HEADS, FFN, LAYERS, VOCABULARY, CONTEXT = 96, 6, 2, 160, 3, 512, 2048
HEAD_DIM = HIDDEN // HEADS
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)

TEXT = """
A mill stands at the river where the water is quick. The wheel turns the shaft, the shaft turns the stone, and the
stone turns grain into flour. The miller listens to the stones: when they run dry they sing, and when the grain is wet
they murmur. He opens the gate a little more, or closes it, and the song changes. People from the village bring their
grain in the morning and take their flour home in the evening. What do they ask the miller? They ask how long it will
take, how much it will cost, and whether the bread will be good. He answers every question in the same way: the grain
decides, the water decides, and I only keep the stones in order.
You are a helpful assistant. The user asks a question and the assistant answers it. system user assistant
Write a short story about a river. Explain how a water wheel works. List three colours of the autumn leaves. What is the
capital of the country? How many days are there in a year? Tell me about the weather in the mountains. Translate this
sentence into another language. Count from one to ten: one, two, three, four, five, six, seven, eight, nine, ten.
Hello, how are you today? I am well, thank you, and you? Can you help me with this problem? Yes, of course I can.
Numbers such as 1 2 3 10 100 1000 stand between words. def main(): return 0 if x else 1; for i in range(10): print(i)
The old stone bridge crosses the river below the mill, and in the winter the children slide on the ice there.
"""


def byte_characters():
    """The printable character that stands for each byte in a byte-level vocabulary (GPT-2's mapping)."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return [chr(b) if b in kept else chr(next(shifted)) for b in range(256)]


def train_bpe(text, tokens):
    """Merges the most frequent pair (the smallest one among equals) until there are enough tokens."""
    characters = byte_characters()
    pattern = regex.compile(r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    words = collections.Counter(
        tuple(characters[b] for b in word.encode()) for word in pattern.findall(text.replace("\n", " ")))
    vocabulary, merges = list(characters), []
    while len(vocabulary) < tokens:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(" ".join(best))
        assert "".join(best) not in vocabulary
        vocabulary.append("".join(best))
        merged = collections.Counter()
        for word, count in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append("".join(best))
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] += count
        words = merged
    return vocabulary, merges


def main():
    random = numpy.random.default_rng(20240501)
    writer = gguf.GGUFWriter(HERE / "tiny_llama.gguf", "llama")
    writer.add_name("tiny llama of random weights")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)

    learned, merges = train_bpe(TEXT, VOCABULARY - len(CONTROL))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(CONTROL + learned)
    writer.add_token_types([gguf.TokenType.CONTROL] * len(CONTROL) + [gguf.TokenType.NORMAL] * len(learned))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    def add(name, shape, kind, scale):
        values = (random.standard_normal(shape) * scale).astype(numpy.float32)
        kind = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def add_norm(name):
        writer.add_tensor(name, (1 + 0.1 * random.standard_normal(HIDDEN)).astype(numpy.float32))

    add("token_embd.weight", (VOCABULARY, HIDDEN), "Q8_0", 0.5)
    kinds = [
        dict(q="Q4_1", k="Q4_1", v="Q8_0", output="F16", gate="Q4_0", up="Q4_0", down="Q8_0"),
        dict(q="Q4_0", k="Q8_0", v="BF16", output="Q4_1", gate="Q5_1", up="Q5_1", down="Q5_0"),
        dict(q="Q4_1", k="Q4_1", v="Q4_1", output="Q4_1", gate="Q4_1", up="Q4_1", down="Q4_1"),
    ]
    for i, kind in enumerate(kinds):
        wide = 1.6 / HIDDEN**0.5
        add_norm(f"blk.{i}.attn_norm.weight")
        add(f"blk.{i}.attn_q.weight", (HEADS * HEAD_DIM, HIDDEN), kind["q"], wide)
        add(f"blk.{i}.attn_k.weight", (KV_HEADS * HEAD_DIM, HIDDEN), kind["k"], wide)
        add(f"blk.{i}.attn_v.weight", (KV_HEADS * HEAD_DIM, HIDDEN), kind["v"], wide)
        add(f"blk.{i}.attn_output.weight", (HIDDEN, HEADS * HEAD_DIM), kind["output"], wide)
        add_norm(f"blk.{i}.ffn_norm.weight")
        add(f"blk.{i}.ffn_gate.weight", (FFN, HIDDEN), kind["gate"], wide)
        add(f"blk.{i}.ffn_up.weight", (FFN, HIDDEN), kind["up"], wide)
        add(f"blk.{i}.ffn_down.weight", (HIDDEN, FFN), kind["down"], 1.6 / FFN**0.5)
    add_norm("output_norm.weight")
    add("output.weight", (VOCABULARY, HIDDEN), "Q8_0", 0.4)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
