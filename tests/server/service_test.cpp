// The whole server over real sockets, with an engine that says what the test wants.
#include "server/service.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "fake_client.h"
#include "fake_model.h"
#include "raw_client.h"

namespace gristmill::server {
namespace {

class ServiceTest : public testing::Test {
 protected:
  void start(bool with_model = true) {
    config_.http.access_log = false;
    service_ = std::make_unique<Service>(config_, Listener({"127.0.0.1", 0, ""}), client_);
    port_ = service_->listener().port();
    if (with_model) service_->model_ready(fake_model(), FakeClient::info());
    thread_ = std::thread([this] { status_ = service_->run(); });
  }
  void TearDown() override {
    client_.pause(false);
    if (service_) service_->stop(0);
    if (thread_.joinable()) thread_.join();
  }
  RawAnswer ask(const std::string& bytes) {
    RawClient client(port_);
    client.send(bytes);
    return client.read_answer();
  }
  boost::json::object answer(const std::string& path, const std::string& body, int status = 200) {
    const RawAnswer got = ask(post(path, body));
    EXPECT_EQ(got.status, status) << got.body;
    return parse(got.body);
  }
  boost::json::object chat(const std::string& fields = "") {
    return answer("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}])" + fields + "}");
  }
  /// The data of every event of a stream.
  std::vector<std::string> events(const std::string& path, const std::string& body) {
    const RawAnswer got = ask(post(path, body));
    EXPECT_EQ(got.headers.at("content-type"), "text/event-stream; charset=utf-8");
    std::vector<std::string> out;
    for (size_t at = 0; at < got.body.size();) {
      const size_t end = got.body.find("\n\n", at);
      EXPECT_EQ(got.body.substr(at, 6), "data: ");
      out.push_back(got.body.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return out;
  }
  std::vector<std::string> chat_events(const std::string& fields = "") {
    return events("/v1/chat/completions",
                  R"({"stream":true,"messages":[{"role":"user","content":"Hi"}])" + fields + "}");
  }
  static const boost::json::object& choice(const boost::json::object& body, size_t i = 0) {
    return body.at("choices").at(i).get_object();
  }
  std::string metric(const std::string& series) {
    const std::string text = ask(get("/metrics")).body;
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos
               ? "absent"
               : text.substr(at + series.size() + 2, text.find('\n', at + 1) - at - series.size() - 2);
  }
  static bool wait_for(const std::function<bool()>& holds) {
    for (int i = 0; i < 300 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return holds();
  }

  FakeClient client_;
  config::ServeConfig config_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
  uint16_t port_ = 0;
  int status_ = -1;
};

TEST_F(ServiceTest, SaysItIsLoadingUntilTheModelIsThere) {
  start(false);
  EXPECT_EQ(ask(get("/health")).status, 503);
  const RawAnswer early = ask(post("/v1/completions", R"({"prompt":"x"})"));
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(early.headers.at("retry-after"), "1");
  service_->model_ready(fake_model(), FakeClient::info());
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(get("/ping")).status, 200);
}

TEST_F(ServiceTest, SmallRoutes) {
  config_.http.load_tracking = true;
  start();
  const boost::json::object models = parse(ask(get("/v1/models")).body);
  EXPECT_EQ(models.at("data").at(0).at("id"), "fake");
  EXPECT_EQ(models.at("data").at(1).at("id"), "alias");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 512);
  EXPECT_EQ(parse(ask(get("/version")).body).at("version"), "0.18.0");
  EXPECT_EQ(ask(get("/load")).body, R"({"server_load":0})");
  EXPECT_EQ(ask(get("/nowhere")).body,
            R"({"error":{"message":"Not Found","type":"Not Found","param":null,"code":404}})");
  const RawAnswer wrong = ask(get("/v1/completions"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(wrong.body,
            R"({"error":{"message":"Method Not Allowed","type":"Method Not Allowed","param":null,"code":405}})");
  EXPECT_EQ(ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: t\r\n\r\n").headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(ask(post("/reset_prefix_cache", "")).status, 404);
  EXPECT_EQ(ask(post("/tokenize", R"({"prompt":"a"})")).body,
            R"({"count":2,"max_model_len":512,"tokens":[256,97],"token_strs":null})");
  EXPECT_EQ(ask(post("/detokenize", R"({"tokens":[97]})")).body, R"({"prompt":"a"})");
}

TEST_F(ServiceTest, DeveloperRoutesNeedTheirMode) {
  config_.http.developer_mode = true;
  start();
  EXPECT_EQ(ask(post("/reset_prefix_cache", "")).body, R"({"success":true})");
}

TEST_F(ServiceTest, ChatCompletion) {
  start();
  const boost::json::object body = chat();
  EXPECT_TRUE(body.at("id").get_string().starts_with("chatcmpl-"));
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "fake");
  EXPECT_EQ(choice(body).at("message").at("content"), "Hello!");
  EXPECT_EQ(choice(body).at("message").at("role"), "assistant");
  EXPECT_FALSE(choice(body).at("message").get_object().contains("tool_calls"));
  EXPECT_EQ(choice(body).at("finish_reason"), "stop");
  EXPECT_TRUE(choice(body).at("stop_reason").is_null());
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 7);  // with EOS
  EXPECT_TRUE(body.at("usage").at("prompt_tokens_details").is_null());
  for (const char* name :
       {"service_tier", "system_fingerprint", "prompt_logprobs", "prompt_token_ids", "kv_transfer_params"}) {
    EXPECT_TRUE(body.at(name).is_null()) << name;
  }
}

TEST_F(ServiceTest, ChatStream) {
  start();
  const std::vector<std::string> got = chat_events();
  EXPECT_EQ(got.back(), "[DONE]");
  std::string text;
  for (size_t i = 0; i + 1 < got.size(); ++i) {
    const boost::json::object chunk = parse(got[i]);
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
    EXPECT_EQ(choice(chunk).at("delta").get_object().contains("role"), i == 0);
    EXPECT_FALSE(chunk.contains("usage"));
    text += choice(chunk).at("delta").at("content").get_string().c_str();
  }
  EXPECT_EQ(text, "Hello!");
  EXPECT_EQ(choice(parse(got[got.size() - 2])).at("finish_reason"), "stop");
  EXPECT_EQ(choice(parse(got[0])).at("delta").at("content"), "H");
}

TEST_F(ServiceTest, StreamUsageOnlyWhenAsked) {
  start();
  std::vector<std::string> got = chat_events(R"(,"stream_options":{"include_usage":true})");
  const boost::json::object last = parse(got[got.size() - 2]);
  EXPECT_TRUE(last.at("choices").get_array().empty());
  EXPECT_EQ(last.at("usage").at("completion_tokens"), 7);
  for (const char* options :
       {R"(,"stream_options":{})", R"(,"stream_options":{"include_usage":false})", R"(,"stream_options":null)"}) {
    got = chat_events(options);
    for (size_t i = 0; i + 1 < got.size(); ++i) EXPECT_FALSE(parse(got[i]).at("choices").get_array().empty());
  }
  got = chat_events(R"(,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  EXPECT_EQ(parse(got[0]).at("usage").at("completion_tokens"), 1);
}

TEST_F(ServiceTest, SeveralChoices) {
  start();
  const boost::json::object body = chat(R"(,"n":3)");
  EXPECT_EQ(body.at("choices").get_array().size(), 3u);
  EXPECT_EQ(choice(body, 2).at("index"), 2);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 21);
  std::map<int64_t, int> roles, ends;
  for (const std::string& event : chat_events(R"(,"n":3)")) {
    if (event == "[DONE]") continue;
    const boost::json::object chunk = parse(event);
    const int64_t index = choice(chunk).at("index").as_int64();
    roles[index] += choice(chunk).at("delta").get_object().contains("role");
    ends[index] += !choice(chunk).at("finish_reason").is_null();
  }
  EXPECT_EQ(roles, (std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(ends, (std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}}));
}

TEST_F(ServiceTest, StopStringEndsTheRequestInTheEngine) {
  client_.set_reply("one two three four");
  client_.set_step_seconds(0.005);
  start();
  const boost::json::object body = chat(R"(,"stop":["two"])");
  EXPECT_EQ(choice(body).at("message").at("content"), "one ");
  EXPECT_EQ(choice(body).at("stop_reason"), "two");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 7);
  EXPECT_TRUE(wait_for([&] { return client_.running() == 0; }));
  EXPECT_EQ(client_.aborted().size(), 1u);
}

TEST_F(ServiceTest, StopStringEndsItsOwnChoiceInTheEngine) {
  client_.set_reply("one two three four");
  client_.set_step_seconds(0.005);
  start();
  const boost::json::object body = chat(R"(,"stop":["two"],"n":2)");
  EXPECT_EQ(choice(body, 1).at("message").at("content"), "one ");
  EXPECT_TRUE(wait_for([&] { return client_.running() == 0; }));
  const engine::RequestId id = client_.submitted()[0].id;
  EXPECT_EQ(client_.aborted(), (std::vector<std::pair<engine::RequestId, int32_t>>{{id, 0}, {id, 1}}));
}

TEST_F(ServiceTest, WhatTheEngineRefusesIsABadRequest) {
  client_.set_refusal("the masks leave no token");
  start();
  const boost::json::object error = answer("/v1/completions", R"({"prompt":"a"})", 400).at("error").get_object();
  EXPECT_EQ(error.at("code"), 400);
  EXPECT_EQ(error.at("type"), "BadRequestError");
  EXPECT_EQ(error.at("message"), "the masks leave no token");
}

TEST_F(ServiceTest, StopStringInTheMiddleOfAStepLooksTheSame) {
  client_.set_reply("one two three four");
  start();
  const std::string fields = R"(,"stop":["two"],"logprobs":true,"top_logprobs":2,"return_token_ids":true)";
  const boost::json::value one_by_one = choice(chat(fields));
  client_.set_tokens_per_step(5);
  EXPECT_EQ(boost::json::serialize(one_by_one), boost::json::serialize(choice(chat(fields))));
}

TEST_F(ServiceTest, StopTokenIdsAreTold) {
  start();
  const boost::json::object body = chat(R"(,"stop_token_ids":[108])");  // 'l'
  EXPECT_EQ(choice(body).at("message").at("content"), "He");
  EXPECT_EQ(choice(body).at("stop_reason"), 108);
}

TEST_F(ServiceTest, ChatLogprobs) {
  start();
  const boost::json::object body = chat(R"(,"logprobs":true,"top_logprobs":2,"max_tokens":2)");
  const boost::json::array& content = choice(body).at("logprobs").at("content").get_array();
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0].at("token"), "H");
  EXPECT_EQ(content[0].at("logprob"), -0.5);
  EXPECT_EQ(content[0].at("bytes").at(0), 72);
  EXPECT_EQ(content[0].at("top_logprobs").get_array().size(), 2u);
  EXPECT_EQ(content[0].at("top_logprobs").at(1).at("token"), "b");
  EXPECT_EQ(choice(body).at("finish_reason"), "length");
  const boost::json::object as_ids = chat(R"(,"logprobs":true,"return_tokens_as_token_ids":true,"max_tokens":1)");
  EXPECT_EQ(choice(as_ids).at("logprobs").at("content").at(0).at("token"), "token_id:72");
  EXPECT_TRUE(choice(as_ids).at("logprobs").at("content").at(0).at("top_logprobs").get_array().empty());
}

TEST_F(ServiceTest, HalfCharactersInLogprobsKeepTheirBytes) {
  client_.set_reply("🦙");
  start();
  const boost::json::object body = chat(R"(,"logprobs":true,"max_tokens":2)");
  EXPECT_EQ(choice(body).at("logprobs").at("content").at(0).at("token"), "\xEF\xBF\xBD");
  EXPECT_EQ(choice(body).at("logprobs").at("content").at(0).at("bytes").at(0), 0xF0);
  EXPECT_EQ(choice(body).at("message").at("content"), "\xEF\xBF\xBD");
  const boost::json::object legacy = answer("/v1/completions", R"({"prompt":"a","logprobs":1,"max_tokens":2})");
  EXPECT_EQ(choice(legacy).at("logprobs").at("tokens").at(0), "bytes:\\xf0");
}

TEST_F(ServiceTest, Completion) {
  start();
  const boost::json::object body = answer("/v1/completions", R"({"prompt":"ab","logprobs":1})");
  EXPECT_TRUE(body.at("id").get_string().starts_with("cmpl-"));
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(choice(body).at("text"), "Hello!");
  const boost::json::object& logprobs = choice(body).at("logprobs").get_object();
  EXPECT_EQ(logprobs.at("tokens").get_array().size(), 7u);
  EXPECT_EQ(logprobs.at("text_offset").at(2), 2);
  EXPECT_EQ(logprobs.at("token_logprobs").at(0), -0.5);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).get_object().size(), 1u);  // the sampled one is the top one
}

TEST_F(ServiceTest, CompletionEchoWithLogprobsOfThePrompt) {
  start();
  const boost::json::object body =
      answer("/v1/completions", R"({"prompt":[97,98,99],"echo":true,"logprobs":1,"max_tokens":0})");
  EXPECT_EQ(choice(body).at("text"), "abc");
  EXPECT_EQ(choice(body).at("finish_reason"), "length");
  const boost::json::object& logprobs = choice(body).at("logprobs").get_object();
  EXPECT_EQ(boost::json::serialize(logprobs.at("tokens")), R"(["a","b","c"])");
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(logprobs.at("token_logprobs").at(1), -0.5);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 0);
  const boost::json::object longer =
      answer("/v1/completions", R"({"prompt":[97,98,99],"echo":true,"logprobs":1,"max_tokens":1})");
  EXPECT_EQ(choice(longer).at("text"), "abcH");
  EXPECT_EQ(choice(longer).at("logprobs").at("text_offset").at(3), 3);
}

TEST_F(ServiceTest, BatchedPromptsGiveChoicesInOrder) {
  start();
  const boost::json::object body =
      answer("/v1/completions", R"({"prompt":["a","b"],"n":2,"max_tokens":2,"return_token_ids":true})");
  ASSERT_EQ(body.at("choices").get_array().size(), 4u);
  EXPECT_EQ(boost::json::serialize(choice(body, 2).at("prompt_token_ids")), "[256,98]");
  EXPECT_EQ(boost::json::serialize(choice(body, 3).at("token_ids")), "[72,101]");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 4);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 8);
}

TEST_F(ServiceTest, PromptLogprobs) {
  start();
  const boost::json::object body = answer("/v1/completions", R"({"prompt":[97,98],"prompt_logprobs":2})");
  const boost::json::array& list = choice(body).at("prompt_logprobs").get_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(list[1].at("98").at("decoded_token"), "b");
  EXPECT_EQ(list[1].at("98").at("rank"), 1);
}

TEST_F(ServiceTest, CompletionStreamPrintsEveryField) {
  start();
  const std::vector<std::string> got = events("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":1})");
  EXPECT_EQ(got.size(), 2u);
  const boost::json::object chunk = parse(got[0]);
  EXPECT_TRUE(chunk.at("usage").is_null());
  EXPECT_EQ(
      boost::json::serialize(choice(chunk)),
      R"({"index":0,"text":"H","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null})");
}

TEST_F(ServiceTest, StrictModeAnswersAsVllm) {
  config_.api.strict_vllm = true;
  start();
  EXPECT_TRUE(choice(chat()).at("message").at("tool_calls").get_array().empty());
  const std::vector<std::string> got = chat_events();
  EXPECT_EQ(boost::json::serialize(choice(parse(got[0])).at("delta")), R"({"role":"assistant","content":""})");
  EXPECT_EQ(boost::json::serialize(choice(parse(got[1])).at("delta")), R"({"content":"H"})");
}

TEST_F(ServiceTest, StreamIntervalJoinsTokens) {
  config_.api.stream_interval = 3;
  start();
  const std::vector<std::string> got = chat_events();
  ASSERT_EQ(got.size(), 4u);  // "H", "ell", "o!" with the end, [DONE]
  EXPECT_EQ(choice(parse(got[1])).at("delta").at("content"), "ell");
}

TEST_F(ServiceTest, TokenIdsInStreams) {
  start();
  const std::vector<std::string> got = chat_events(R"(,"return_token_ids":true,"max_tokens":2)");
  EXPECT_TRUE(parse(got[0]).at("prompt_token_ids").is_array());
  EXPECT_FALSE(parse(got[1]).contains("prompt_token_ids"));
  EXPECT_EQ(boost::json::serialize(choice(parse(got[1])).at("token_ids")), "[101]");
}

TEST_F(ServiceTest, ErrorsHaveTheirBodies) {
  start();
  const auto error = [&](const std::string& body) {
    const RawAnswer got = ask(post("/v1/chat/completions", body));
    return std::to_string(got.status) + " " + got.body;
  };
  EXPECT_EQ(
      error("{"),
      R"(400 {"error":{"message":"JSON decode error at byte 1: incomplete JSON","type":"Bad Request","param":null,"code":400}})");
  EXPECT_EQ(error(R"({"messages":[{"role":"user","content":"x"}],"temperature":-1})").substr(0, 3), "400");
  EXPECT_EQ(
      error(R"({"model":"other","messages":[{"role":"user","content":"x"}]})"),
      R"(404 {"error":{"message":"The model `other` does not exist.","type":"NotFoundError","param":"model","code":404}})");
  const RawAnswer type =
      ask("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(type.status, 400);
  EXPECT_NE(type.body.find("Unsupported Media Type: Only 'application/json' is allowed"), std::string::npos);
  EXPECT_EQ(error("{\"model\":\"\xff\xfe\"}").substr(0, 3), "400");
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(ServiceTest, WarningsListIgnoredFields) {
  start();
  const RawAnswer got = ask(post("/v1/completions", R"({"prompt":"a","best_of":4,"x\n\"":1})"));
  EXPECT_EQ(got.headers.at("warning"), R"(199 gristmill "ignored fields: best_of, x?\"")");
}

TEST_F(ServiceTest, RequestIds) {
  config_.http.request_id_headers = true;
  start();
  const std::string body = R"({"prompt":"a","request_id":"mine"})";
  EXPECT_EQ(parse(ask(post("/v1/completions", body)).body).at("id"), "cmpl-mine");
  const RawAnswer header = ask(post("/v1/completions", body, "X-Request-Id: theirs\r\n"));
  EXPECT_EQ(parse(header.body).at("id"), "cmpl-theirs");
  EXPECT_EQ(header.headers.at("x-request-id"), "theirs");
  const RawAnswer huge = ask(post("/v1/completions", body, "X-Request-Id: " + std::string(5000, 'x') + "\r\n"));
  EXPECT_EQ(parse(huge.body).at("id"), "cmpl-mine");
}

TEST_F(ServiceTest, KeysGuardTheApi) {
  config_.http.api_keys = {"secret"};
  start();
  const RawAnswer refused = ask(get("/v1/models"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(ask(get("/v1/models", "Origin: https://a\r\n")).headers.at("access-control-allow-origin"), "*");
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer secret\r\n")).status, 200);
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(
      ask("OPTIONS /v1/models HTTP/1.1\r\nHost: t\r\nOrigin: https://a\r\nAccess-Control-Request-Method: GET\r\n\r\n")
          .status,
      200);
}

TEST_F(ServiceTest, RootPathIsStripped) {
  config_.http.root_path = "/llm";
  config_.http.api_keys = {"secret"};
  start();
  EXPECT_EQ(ask(get("/llm/health")).status, 200);
  EXPECT_EQ(ask(get("/llm/v1/models")).status, 401);
  EXPECT_EQ(ask(get("/llmx/health", "Authorization: Bearer secret\r\n")).status, 404);
}

TEST_F(ServiceTest, LongRequestsArePreparedBesideTheLoop) {
  start();
  const std::string body = R"({"prompt":")" + std::string(20000, 'a') + R"("})";
  const RawAnswer got = ask(post("/v1/completions", body));
  EXPECT_EQ(got.status, 400);
  EXPECT_NE(got.body.find("maximum context length is 512 tokens"), std::string::npos);
  std::string spaced = R"({"prompt":"ab")" + std::string(20000, ' ') + "}";
  EXPECT_EQ(choice(answer("/v1/completions", spaced)).at("text"), "Hello!");
}

TEST_F(ServiceTest, ClientsThatLeaveAreAbortedAndCounted) {
  client_.pause(true);
  start();
  {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<RawClient>(port_));
      clients.back()->send(post("/v1/completions", i % 2 ? R"({"prompt":"a"})" : R"({"prompt":"a","stream":true})"));
    }
    ASSERT_TRUE(wait_for([&] { return client_.running() == 8; }));
  }
  EXPECT_TRUE(wait_for([&] { return client_.running() == 0; }));
  EXPECT_EQ(client_.aborted().size(), 8u);
  EXPECT_EQ(metric(R"(vllm:request_success_total{model_name="fake",engine="0",finished_reason="abort"})"), "8.0");
  EXPECT_EQ(metric(R"(vllm:num_requests_running{model_name="fake",engine="0"})"), "0.0");
}

TEST_F(ServiceTest, ClientThatLeavesAStreamIsAborted) {
  client_.set_reply(std::string(400, 'x'));
  client_.set_step_seconds(0.01);
  start();
  {
    RawClient client(port_);
    client.send(post("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":400,"n":2})"));
    client.read_head();
    for (int i = 0; i < 4; ++i) client.read_chunk();
  }
  EXPECT_TRUE(wait_for([&] { return client_.running() == 0; }));
  EXPECT_EQ(metric(R"(vllm:request_success_total{model_name="fake",engine="0",finished_reason="abort"})"), "2.0");
}

TEST_F(ServiceTest, EngineThatDiesBeforeTheFirstTokenGives503) {
  client_.pause(true);
  start();
  RawClient client(port_);
  client.send(post("/v1/completions", R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(wait_for([&] { return client_.running() == 1; }));
  client_.die();
  const RawAnswer got = client.read_answer();
  EXPECT_EQ(got.status, 503);
  EXPECT_NE(got.body.find("killed by signal 9"), std::string::npos);
  EXPECT_EQ(ask(get("/health")).status, 503);
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt":"a"})")).status, 503);
  client_.revive();
  client_.pause(false);
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt":"a"})")).status, 200);
}

TEST_F(ServiceTest, EngineThatDiesInAStreamEndsItWithAnError) {
  client_.set_reply(std::string(400, 'x'));
  client_.set_step_seconds(0.01);
  start();
  RawClient client(port_);
  client.send(post("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":400})"));
  client.read_head();
  client.read_chunk();
  client_.pause(true);
  ASSERT_TRUE(wait_for([&] { return client_.running() == 1; }));
  client_.die();
  std::string rest;
  for (std::string chunk = client.read_chunk(); !chunk.empty(); chunk = client.read_chunk()) rest += chunk;
  EXPECT_NE(
      rest.find(
          R"(data: {"error":{"message":"the engine process was killed by signal 9","type":"ServiceUnavailableError","param":null,"code":503}})"),
      std::string::npos);
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(metric(R"(vllm:request_success_total{model_name="fake",engine="0",finished_reason="error"})"), "1.0");
}

TEST_F(ServiceTest, FullQueueIsRefused) {
  config_.api.max_queued_requests = 2;
  client_.pause(true);
  start();
  RawClient first(port_), second(port_);
  first.send(post("/v1/completions", R"({"prompt":"a"})"));
  second.send(post("/v1/completions", R"({"prompt":"a"})"));
  ASSERT_TRUE(wait_for([&] { return client_.running() == 2; }));
  const RawAnswer third = ask(post("/v1/completions", R"({"prompt":"a"})"));
  EXPECT_EQ(third.status, 503);
  EXPECT_EQ(third.headers.at("retry-after"), "1");
  client_.pause(false);
  EXPECT_EQ(first.read_answer().status, 200);
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt":"a"})")).status, 200);
}

TEST_F(ServiceTest, ShutdownLetsRunningRequestsEnd) {
  client_.set_reply(std::string(40, 'x'));
  client_.set_step_seconds(0.01);
  start();
  RawClient client(port_);
  client.send(post("/v1/completions", R"({"prompt":"a","stream":true,"max_tokens":40})"));
  client.read_head();
  client.read_chunk();
  service_->shut_down();
  ASSERT_TRUE(wait_for([&] { return ask(get("/health")).status == 503; }));
  const RawAnswer refused = ask(post("/v1/completions", R"({"prompt":"a"})"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  std::string rest;
  for (std::string chunk = client.read_chunk(); !chunk.empty(); chunk = client.read_chunk()) rest += chunk;
  EXPECT_NE(rest.find(R"("finish_reason":"length")"), std::string::npos);
  thread_.join();
  EXPECT_EQ(status_, 0);
}

TEST_F(ServiceTest, ShutdownEndsWhatTakesTooLong) {
  config_.http.shutdown_seconds = 0.1;
  client_.pause(true);
  start();
  RawClient client(port_);
  client.send(post("/v1/completions", R"({"prompt":"a"})"));
  ASSERT_TRUE(wait_for([&] { return client_.running() == 1; }));
  service_->shut_down();
  EXPECT_EQ(choice(parse(client.read_answer().body)).at("finish_reason"), "abort");
  thread_.join();
  EXPECT_EQ(status_, 0);
}

TEST_F(ServiceTest, MetricsCountTokensAndTimes) {
  start();
  chat();
  const std::string labels = R"({model_name="fake",engine="0"})";
  EXPECT_EQ(metric("vllm:generation_tokens_total" + labels), "7.0");
  EXPECT_EQ(metric("vllm:prompt_tokens_cached_total" + labels), "3.0");
  EXPECT_EQ(metric("vllm:time_to_first_token_seconds_count" + labels), "1.0");
  EXPECT_EQ(metric("vllm:inter_token_latency_seconds_count" + labels), "6.0");
  EXPECT_EQ(metric(R"(http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"})"), "1.0");
}

}  // namespace
}  // namespace gristmill::server
