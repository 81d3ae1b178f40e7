"""Raw HTTP against the running server."""
import json
import socket

import httpx
import pytest


def raw(server, data):
    """Sends bytes and returns everything that comes back until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(data)
        connection.settimeout(1)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except socket.timeout:
            pass
        return answer


def test_health_version_metrics(http):
    assert http.get("/health").status_code == 200
    assert http.get("/ping").status_code == 200
    assert http.post("/ping").status_code == 200
    assert http.head("/health").content == b""
    assert http.get("/version").json()["version"] == "0.18.0"
    metrics = http.get("/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'vllm:num_requests_running{model_name="tiny",engine="0"}' in metrics.text


def test_unknown_paths_and_methods(http):
    assert http.get("/v1/nothing").json()["error"]["code"] == 404
    answer = http.delete("/v1/models")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"


@pytest.mark.parametrize("body, status", [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b'{"model":"tiny","prompt":"\xff\xfe"}', 400),
    (b'{"prompt":"\\ud800"}', 400),
    (b'{"prompt":' + b"[" * 10000 + b"]" * 10000 + b"}", 400),
    (b'{"prompt":[-1]}', 400),
    (b'{"prompt":[512]}', 400),
    (b'{"prompt":"x","max_tokens":9223372036854775808}', 400),
    (b'{"prompt":"x","top_k":"many"}', 400),
    (b'{"prompt":"x","stop":' + json.dumps(["x"] * 100000).encode() + b"}", 400),
    (b'{"prompt":"' + b"a" * 3_000_000 + b'"}', 400),
    (('{"model":"' + "\\u00ff" * 100000 + '","prompt":"x"}').encode(), 404),
])
def test_bad_bodies_get_an_error_body(http, body, status):
    answer = http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["code"] == status and error["message"] and len(error["message"]) < 1000
    assert http.get("/health").status_code == 200


def test_content_type_must_be_json(http):
    answer = http.post("/v1/completions", content=b'{"prompt":"x"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "Unsupported Media Type: Only 'application/json' is allowed"


def test_bad_http(server, http):
    for data in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"):
        assert raw(server, data).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    huge = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    assert raw(server, huge).startswith(b"HTTP/1.1 413 ")
    many = b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(10000)) + b"\r\n"
    assert raw(server, many).startswith(b"HTTP/1.1 431 ")
    assert http.get("/health").status_code == 200


def test_chunked_request_body(http):
    def pieces():
        yield b'{"prompt":"The '
        yield b'river","max_tokens":2}'

    answer = http.post("/v1/completions", content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 200


def test_tokenize_and_back(http):
    tokens = http.post("/tokenize", json={"prompt": "Hello, how are you?", "add_special_tokens": False}).json()
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] == 2048
    assert http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "Hello, how are you?"}
    chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": "x"}], "return_token_strs": True}).json()
    assert chat["token_strs"][0] == "<|im_start|>"


def test_stream_is_server_sent_events(http):
    with http.stream("POST", "/v1/completions", json={"prompt": "The", "max_tokens": 3, "stream": True}) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        text = answer.read().decode()
    events = text.split("\n\n")
    assert events[-1] == "" and events[-2] == "data: [DONE]"
    for event in events[:-2]:
        assert event.startswith("data: {")
        assert set(json.loads(event[6:])) == {"id", "object", "created", "model", "choices", "usage"}


def test_warning_header_lists_unknown_fields(http):
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, "best_of": 3, "what": 1})
    assert answer.headers["warning"] == '199 gristmill "ignored fields: best_of, what"'


def test_prefix_cache_is_reset(http):
    http.post("/v1/completions", json={"prompt": "The river and the mill " * 10, "max_tokens": 1})
    assert http.post("/reset_prefix_cache").json() == {"success": True}
    answer = http.post("/v1/completions", json={"prompt": "The river and the mill " * 10, "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_same_request_id_twice_at_a_time(server):
    with httpx.Client(base_url=server.url, headers={"x-request-id": "twin"}) as client:
        body = {"prompt": "The", "max_tokens": 30, "stream": True, "temperature": 0}
        with client.stream("POST", "/v1/completions", json=body) as first, \
                client.stream("POST", "/v1/completions", json=body) as second:
            assert first.read() == second.read()


def test_cors(http):
    preflight = http.options("/v1/chat/completions", headers={
        "origin": "https://example.org", "access-control-request-method": "POST",
        "access-control-request-headers": "authorization"})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert preflight.headers["access-control-allow-headers"] == "authorization"
