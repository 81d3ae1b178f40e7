"""The official OpenAI client against the running server."""
import concurrent.futures
import math

import openai
import pytest

from conftest import eventually, metric

HELLO = [{"role": "user", "content": "Hello, how are you today?"}]


def test_models(client):
    models = client.models.list().data
    assert [model.id for model in models] == ["tiny", "other-name"]
    assert models[0].max_model_len == 2048


def test_chat(client):
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=8, temperature=0)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_chat_stream_equals_the_plain_answer(client):
    request = dict(model="tiny", messages=HELLO, max_tokens=24, temperature=0)
    plain = client.chat.completions.create(**request)
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
    assert "".join(chunk.choices[0].delta.content for chunk in chunks[:-1]) == plain.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == plain.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens


def test_stream_without_usage_has_no_empty_choices(client):
    for options in ({}, {"include_usage": False}):
        stream = client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=3, stream=True, stream_options=options)
        assert all(chunk.choices for chunk in stream)


def test_other_served_name_is_answered_under_it(client):
    assert client.completions.create(model="other-name", prompt="x", max_tokens=1).model == "other-name"


def test_completion(client):
    answer = client.completions.create(model="tiny", prompt="The miller", max_tokens=5, temperature=0)
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].text
    streamed = client.completions.create(model="tiny", prompt="The miller", max_tokens=5, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == answer.choices[0].text


def test_completion_batch_and_token_ids(client):
    answer = client.completions.create(
        model="tiny", prompt=["The river", "The stone"], max_tokens=4, n=2, seed=1, extra_body={"return_token_ids": True})
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all(len(choice.token_ids) == 4 for choice in answer.choices)
    ids = answer.choices[0].prompt_token_ids
    again = client.completions.create(model="tiny", prompt=ids, max_tokens=4, temperature=0)
    text = client.completions.create(
        model="tiny", prompt="The river", max_tokens=4, temperature=0, extra_body={"add_special_tokens": True})
    assert again.choices[0].text == text.choices[0].text


def test_greedy_answers_are_the_same_alone_and_together(client):
    def ask(i):
        return client.completions.create(
            model="tiny", prompt=f"Count from {i} to ten:", max_tokens=20, temperature=0).choices[0].text

    alone = [ask(i) for i in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = list(pool.map(ask, range(6)))
    assert together == alone


def test_several_choices_differ_and_repeat_with_the_seed(client):
    request = dict(model="tiny", messages=HELLO, max_tokens=12, n=3, seed=7, temperature=1)
    plain = client.chat.completions.create(**request)
    texts = [choice.message.content for choice in plain.choices]
    assert len(set(texts)) == 3
    assert plain.usage.completion_tokens == 36
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(**request, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content
    assert streamed == texts


def test_a_stop_string_ends_one_choice_of_several(client):
    request = dict(model="tiny", prompt="The", max_tokens=20, n=3, seed=7, temperature=1)
    texts = [choice.text for choice in client.completions.create(**request).choices]
    stop = next(texts[1][i:i + 3] for i in range(3, len(texts[1]) - 3)
                if all(texts[1][i:i + 3] not in other for other in (texts[0], texts[2], texts[1][:i + 2])))
    expected = [texts[0], texts[1][:texts[1].index(stop)], texts[2]]
    plain = client.completions.create(**request, stop=[stop])
    assert [choice.text for choice in plain.choices] == expected
    assert [choice.finish_reason for choice in plain.choices] == ["length", "stop", "length"]
    assert plain.usage.completion_tokens < 60
    streamed, ends = ["", "", ""], [[], [], []]
    for chunk in client.completions.create(**request, stop=[stop], stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
            ends[choice.index] += [choice.finish_reason] if choice.finish_reason else []
    assert streamed == expected
    assert ends == [["length"], ["stop"], ["length"]]


def test_unseeded_answers_differ(client):
    texts = {client.completions.create(model="tiny", prompt="The", max_tokens=12, temperature=1).choices[0].text
             for _ in range(4)}
    assert len(texts) > 1


def test_chat_logprobs(client):
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == 4
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # greedy
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
        assert bytes(entry.bytes).decode(errors="replace") == entry.token


def test_stream_logprobs_cover_every_token(client):
    stream = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=10, logprobs=True, stream=True, seed=3)
    assert sum(len(chunk.choices[0].logprobs.content) for chunk in stream if chunk.choices[0].logprobs) == 10


def test_completion_logprobs_and_echo(client):
    prompt = "The river turns"
    answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=1, logprobs=2, echo=True, temperature=0)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text.startswith(prompt)
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert len(logprobs.tokens) == answer.usage.prompt_tokens + 1
    only = client.completions.create(model="tiny", prompt=prompt, max_tokens=0, logprobs=2, echo=True)
    assert only.choices[0].text == prompt
    assert only.choices[0].finish_reason == "length"
    assert only.choices[0].logprobs.token_logprobs == logprobs.token_logprobs[:-1]
    assert only.usage.completion_tokens == 0


def test_prompt_logprobs(client):
    answer = client.completions.create(
        model="tiny", prompt="The river", max_tokens=1, extra_body={"prompt_logprobs": 2, "return_token_ids": True})
    choice = answer.choices[0]
    assert choice.prompt_logprobs[0] is None
    for entry, token in zip(choice.prompt_logprobs[1:], choice.prompt_token_ids[1:]):
        assert str(token) in entry
        assert entry[str(token)]["rank"] >= 1


def test_prompt_logprobs_of_the_whole_vocabulary(client):
    answer = client.completions.create(
        model="tiny", prompt="The river", max_tokens=1, extra_body={"prompt_logprobs": -1})
    for entry in answer.choices[0].prompt_logprobs[1:]:
        assert sum(math.exp(token["logprob"]) for token in entry.values()) == pytest.approx(1, abs=1e-4)
        assert sorted(token["rank"] for token in entry.values()) == list(range(1, len(entry) + 1))


def test_echo_without_output_scores_the_prompt_the_same_every_time(client):
    prompt = "The river turns the mill, and the mill turns the stone. " * 4
    request = dict(model="tiny", prompt=prompt, max_tokens=0, echo=True, logprobs=1)
    first = client.completions.create(**request)
    again = client.completions.create(**request)
    assert first.choices[0].text == prompt
    assert first.choices[0].logprobs.token_logprobs == again.choices[0].logprobs.token_logprobs
    assert len(first.choices[0].logprobs.tokens) == first.usage.prompt_tokens
    assert first.choices[0].logprobs.text_offset[0] == 0
    assert first.usage.completion_tokens == 0


def test_bad_words_are_banned_with_and_without_a_space(client, http):
    tokens = lambda text: http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]
    bare, spaced, other = tokens("mill"), tokens(" mill"), 300
    assert bare != spaced
    request = dict(model="tiny", prompt="The", max_tokens=12, temperature=0)
    extra = {"allowed_token_ids": [*bare, *spaced, other], "return_token_ids": True}
    banned = client.completions.create(**request, extra_body=extra | {"bad_words": ["mill"]}).choices[0].token_ids
    pairs = [banned[i:i + n] for n in (len(bare), len(spaced)) for i in range(len(banned))]
    assert bare not in pairs and spaced not in pairs
    with pytest.raises(openai.BadRequestError):
        client.completions.create(**request, extra_body={"bad_words": [""]})


def test_masks_and_biases(client):
    request = dict(model="tiny", prompt="The", max_tokens=6, temperature=0)
    only = client.completions.create(
        **request, extra_body={"allowed_token_ids": [300, 301], "return_token_ids": True}).choices[0].token_ids
    assert set(only) <= {300, 301}
    biased = client.completions.create(
        **request, logit_bias={"302": 100}, extra_body={"return_token_ids": True}).choices[0].token_ids
    assert set(biased) == {302}
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**request, extra_body={"allowed_token_ids": [300], "bad_words": ["x"], "min_tokens": 1,
                                                         "stop_token_ids": [300]})
    assert "leave no token" in caught.value.body["message"]


def test_min_tokens_hold_back_stops(client):
    request = dict(model="tiny", prompt="The", max_tokens=12, temperature=0)
    ids = client.completions.create(**request, extra_body={"return_token_ids": True}).choices[0].token_ids
    held = client.completions.create(
        **request, extra_body={"stop_token_ids": [ids[0]], "min_tokens": 5, "return_token_ids": True}).choices[0]
    assert ids[0] not in held.token_ids[:5] and len(held.token_ids) >= 6


def test_tokens_as_ids(client):
    answer = client.completions.create(
        model="tiny", prompt="The", max_tokens=3, logprobs=1, temperature=0,
        extra_body={"return_tokens_as_token_ids": True, "return_token_ids": True})
    assert answer.choices[0].logprobs.tokens == [f"token_id:{id}" for id in answer.choices[0].token_ids]


def test_cache_salt_keeps_prefixes_apart(client):
    prompt = "Whoever salts the stream keeps it for himself alone, they say. " * 4
    cached = lambda salt: client.completions.create(
        model="tiny", prompt=prompt, max_tokens=1, extra_body={"cache_salt": salt}
    ).usage.prompt_tokens_details.cached_tokens
    assert [cached("a"), cached("b")] == [0, 0]
    assert cached("a") >= 16 and cached("b") >= 16


def test_truncated_prompt_keeps_its_end(client):
    request = dict(model="tiny", max_tokens=1, temperature=0)
    cut = client.completions.create(
        prompt=list(range(100, 140)), extra_body={"truncate_prompt_tokens": 7, "return_token_ids": True}, **request)
    assert cut.choices[0].prompt_token_ids == list(range(133, 140))
    assert cut.usage.prompt_tokens == 7


def test_special_tokens_are_shown_when_asked(client):
    request = dict(model="tiny", prompt="The", max_tokens=2, temperature=0, logit_bias={"2": 100})
    shown = client.completions.create(**request, extra_body={"skip_special_tokens": False, "ignore_eos": True})
    hidden = client.completions.create(**request, extra_body={"ignore_eos": True})
    assert shown.choices[0].text and not hidden.choices[0].text


def test_stop_strings(client):
    text = client.completions.create(model="tiny", prompt="The", max_tokens=30, temperature=0).choices[0].text
    stop = text[8:11]
    expected = text[:text.index(stop)]
    request = dict(model="tiny", prompt="The", max_tokens=30, temperature=0)
    plain = client.completions.create(**request, stop=[stop])
    assert plain.choices[0].text == expected
    assert plain.choices[0].finish_reason == "stop"
    assert plain.choices[0].stop_reason == stop
    streamed = client.completions.create(**request, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == expected
    kept = client.completions.create(**request, stop=[stop], extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text == expected + stop


def test_stop_token_ids_and_ignore_eos(client):
    request = dict(model="tiny", prompt="The", max_tokens=12, temperature=0)
    ids = client.completions.create(**request, extra_body={"return_token_ids": True}).choices[0].token_ids
    stopped = client.completions.create(**request, extra_body={"stop_token_ids": [ids[5]], "return_token_ids": True})
    cut = ids.index(ids[5]) + 1
    assert stopped.choices[0].token_ids == ids[:cut]
    assert stopped.choices[0].stop_reason == ids[5]
    full = client.completions.create(**request, extra_body={"ignore_eos": True})
    assert full.usage.completion_tokens == 12
    assert full.choices[0].finish_reason == "length"


def test_cached_tokens_are_told(client):
    prompt = "A mill stands at the river where the water is quick. " * 6
    client.completions.create(model="tiny", prompt=prompt, max_tokens=1)
    again = client.completions.create(model="tiny", prompt=prompt, max_tokens=1)
    assert again.usage.prompt_tokens_details.cached_tokens >= 16


def test_continue_final_message(client):
    messages = HELLO + [{"role": "assistant", "content": "The stone turns "}]
    request = dict(model="tiny", max_tokens=8, temperature=0)
    continued = client.chat.completions.create(
        messages=messages, extra_body={"continue_final_message": True, "add_generation_prompt": False}, **request)
    prompt = ("<|im_start|>user\nHello, how are you today?<|im_end|>\n<|im_start|>assistant\nThe stone turns ")
    raw = client.completions.create(prompt=prompt, extra_body={"add_special_tokens": False}, **request)
    assert continued.choices[0].message.content == raw.choices[0].text


@pytest.mark.parametrize("fields, param", [
    (dict(temperature=-1), "temperature"),
    (dict(max_tokens=5000), "input_tokens"),
    (dict(n=2, temperature=0), "n"),
    (dict(extra_body={"top_k": -5}), "top_k"),
    (dict(response_format={"type": "json_object"}), "response_format"),
    (dict(stop=[""]), "stop"),
])
def test_errors_name_the_field(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=HELLO, **fields)
    assert caught.value.body["param"] == param
    assert caught.value.body["message"]


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nope", messages=HELLO)
    assert caught.value.body["message"] == "The model `nope` does not exist."


def test_leaving_a_stream_aborts_it(server, client):
    before = metric(server, "vllm:request_success_total", finished_reason="abort")
    stream = client.completions.create(
        model="tiny", prompt="The", max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert eventually(lambda: metric(server, "vllm:request_success_total", finished_reason="abort") == before + 1)
    assert eventually(lambda: metric(server, "vllm:num_requests_running") == 0)


def test_leaving_a_plain_request_aborts_it(server, client):
    before = metric(server, "vllm:request_success_total", finished_reason="abort")
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.1).completions.create(
            model="tiny", prompt="The", max_tokens=2000, n=64, extra_body={"ignore_eos": True})
    assert eventually(lambda: metric(server, "vllm:request_success_total", finished_reason="abort") == before + 64)
    assert eventually(lambda: metric(server, "vllm:num_requests_running") == 0)
    assert eventually(lambda: metric(server, "vllm:kv_cache_usage_perc") == 0)
