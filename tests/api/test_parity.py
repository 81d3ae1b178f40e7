"""Golden checkpoints over HTTP: prompt_logprobs and greedy continuations are those of transformers in float32.

They lie in GRISTMILL_SHARED_DATA/golden (default: ../shared/data beside the project).
"""
import array
import json
import math
import os
import pathlib
import struct

import httpx
import pytest

import conftest

DATA = pathlib.Path(os.environ.get("GRISTMILL_SHARED_DATA", conftest.ROOT.parent / "shared" / "data")) / "golden"
CHECKPOINTS = ["tiny-llama", "tiny-qwen3-moe", "tiny-qwen3-moe-sharded", "tiny-qwen3_5-dense", "tiny-qwen3_5-moe",
               "tiny-minimax-m2", "tiny-minimax-m2-fp8"]


class Golden:
    """The tensors of a safetensors file."""

    def __init__(self, path):
        self.bytes = path.read_bytes()
        self.start = 8 + struct.unpack("<Q", self.bytes[:8])[0]
        self.header = json.loads(self.bytes[8:self.start])

    def prompts(self):
        return sorted(name.removesuffix(".input_ids") for name in self.header if name.endswith(".input_ids"))

    def __getitem__(self, name):
        entry = self.header[name]
        first, end = entry["data_offsets"]
        values = array.array({"I32": "i", "F32": "f"}[entry["dtype"]])
        values.frombytes(self.bytes[self.start + first:self.start + end])
        return values


def known_tokens(folder):
    """How many ids the tokenizer has; rows of the head behind them are padding, which is never drawn nor counted."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    return 1 + max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])])


def expected_logprobs(golden, prompt, known):
    """log p(token i | before) for i >= 1, from the logits."""
    ids, logits = golden[f"{prompt}.input_ids"], golden[f"{prompt}.logits"]
    width = len(logits) // len(ids)
    out = []
    for i, token in enumerate(ids[1:]):
        row = logits[i * width:i * width + known]
        top = max(row)
        out.append(row[token] - top - math.log(sum(math.exp(x - top) for x in row)))
    return out


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_prompt_logprobs_and_continuations_are_transformers(start_server, name):
    path = DATA / "golden" / name.removesuffix("-sharded") / "text.safetensors"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    golden, known = Golden(path), known_tokens(DATA / name)
    server = start_server("--dtype", "float32", "--max-model-len", "448", model=DATA / name).wait_ready()
    with httpx.Client(base_url=server.url, timeout=60) as http:
        assert golden.prompts()
        for prompt in golden.prompts():
            ids, greedy = list(golden[f"{prompt}.input_ids"]), list(golden[f"{prompt}.greedy_ids"])
            answer = http.post("/v1/completions", json={
                "prompt": ids, "max_tokens": len(greedy), "temperature": 0, "ignore_eos": True, "prompt_logprobs": 0,
                "return_token_ids": True})
            assert answer.status_code == 200, answer.text
            choice = answer.json()["choices"][0]
            assert choice["token_ids"] == greedy, prompt
            got = choice["prompt_logprobs"]
            assert got[0] is None and len(got) == len(ids)
            for token, entry, expected in zip(ids[1:], got[1:], expected_logprobs(golden, prompt, known)):
                assert abs(entry[str(token)]["logprob"] - expected) < 2e-3, prompt
