#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "raw_client.h"
#include "server/http/server.h"

namespace gristmill::server {
namespace {

using namespace std::string_literals;

/// Answers with what it was sent; some paths behave specially.
class EchoHandler final : public HttpHandler {
 public:
  explicit EchoHandler(EventLoop& loop) : loop_(loop) {}
  std::optional<Response> refuse(const Request& request) override {
    if (request.path != "/refused") return {};
    Response response;
    response.status = 404;
    response.body = "refused";
    return response;
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    const Request& request = exchange->request();
    if (request.path == "/later") {
      loop_.after(0.1, [exchange] { exchange->respond(text(200, "later")); });
    } else if (request.path == "/hold") {
      exchange->on_gone([this] { ++gone; });
      const std::lock_guard lock(mutex);
      held = exchange;
    } else if (request.path == "/stream") {
      Response head;
      head.content_type = "text/event-stream";
      exchange->start_stream(head);
      for (int i = 0; i < 3; ++i) exchange->write("event " + std::to_string(i) + "\n");
      exchange->finish();
    } else if (request.path == "/flood") {
      exchange->on_gone([this] { ++gone; });
      exchange->start_stream({});
      flood(exchange);
    } else if (request.path == "/dropped") {
      // The exchange is let go without an answer.
    } else if (request.path == "/evil") {
      Response response = text(200, "x");
      response.set("X-Echo", request.query_value("v"));
      exchange->respond(response);
    } else {
      exchange->respond(text(200, request.method + " " + request.path + "?" + request.query + " " + request.body));
    }
  }
  void answered(const Request&, int status, uint64_t, uint64_t, double) override { last_status = status; }
  Response broken(int status, const std::string& why) override { return text(status, why); }

  std::atomic<int> gone{0};
  std::atomic<int> last_status{0};
  std::mutex mutex;
  std::shared_ptr<Exchange> held;

 private:
  static Response text(int status, std::string body) {
    Response response;
    response.status = status;
    response.content_type = "text/plain";
    response.body = std::move(body);
    return response;
  }
  void flood(const std::shared_ptr<Exchange>& exchange) {
    if (exchange->gone()) return;
    exchange->write(std::string(10000, 'x'));
    loop_.after(0.001, [this, exchange] { flood(exchange); });
  }
  EventLoop& loop_;
};

HttpLimits small_limits() {
  HttpLimits limits;
  limits.header_bytes = 2048;
  limits.header_count = 20;
  limits.body_bytes = 100000;
  limits.header_seconds = 0.3;
  limits.body_seconds = 0.3;
  limits.idle_seconds = 0.5;
  limits.stall_seconds = 0.5;
  limits.stream_bytes = 200000;
  limits.sweep_seconds = 0.05;
  return limits;
}

class HttpServerTest : public testing::Test {
 protected:
  void start(const HttpLimits& limits = small_limits()) {
    server_ = std::make_unique<HttpServer>(loop_, Listener({"127.0.0.1", 0, ""}), limits, handler_);
    port_ = server_->listener().port();
    server_->start();
    thread_ = std::thread([this] { loop_.run(); });
  }
  void TearDown() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    handler_.held.reset();
  }
  RawAnswer ask(const std::string& bytes) {
    RawClient client(port_);
    client.send(bytes);
    return client.read_answer();
  }
  static bool wait_for(const std::function<bool()>& holds) {
    for (int i = 0; i < 300 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return holds();
  }

  EventLoop loop_;
  EchoHandler handler_{loop_};
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  uint16_t port_ = 0;
};

TEST_F(HttpServerTest, AnswersWithMethodPathQueryAndBody) {
  start();
  const RawAnswer answer = ask(post("/a%20b?x=1", "hello"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST /a b?x=1 hello");
  EXPECT_TRUE(answer.headers.contains("date"));
}

TEST_F(HttpServerTest, KeepsConnectionsOpenAndAnswersPipelinedRequestsInOrder) {
  start();
  RawClient client(port_);
  client.send(get("/later") + get("/second") + get("/third"));
  EXPECT_EQ(client.read_answer().body, "later");
  EXPECT_EQ(client.read_answer().body, "GET /second? ");
  EXPECT_EQ(client.read_answer().body, "GET /third? ");
  client.send(get("/fourth"));
  EXPECT_EQ(client.read_answer().body, "GET /fourth? ");
}

TEST_F(HttpServerTest, AcceptsRequestsInAnyPieces) {
  start();
  RawClient client(port_);
  for (const char c : post("/slow", "body")) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.read_answer().body, "POST /slow? body");
}

TEST_F(HttpServerTest, HeadHasNoBodyButItsLength) {
  start();
  RawClient client(port_);
  client.send("HEAD /x HTTP/1.1\r\nHost: t\r\n\r\n" + get("/y"));
  const RawAnswer head = client.read_head();
  EXPECT_EQ(head.headers.at("content-length"), "9");
  EXPECT_EQ(client.read_answer().body, "GET /y? ");
}

TEST_F(HttpServerTest, ChunkedBodiesAreJoined) {
  start();
  const RawAnswer answer =
      ask("POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(answer.body, "POST /c? abcde");
}

TEST_F(HttpServerTest, Expect100IsAnsweredBeforeTheBody) {
  start();
  RawClient client(port_);
  client.send("POST /e HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.read_head().status, 100);
  client.send("body");
  EXPECT_EQ(client.read_answer().body, "POST /e? body");
}

TEST_F(HttpServerTest, RefusalsComeBeforeTheBodyAndEndTheConnection) {
  start();
  RawClient client(port_);
  client.send("POST /refused HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 90000\r\n\r\n");
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, RefusedRequestsWithoutBodyKeepTheConnection) {
  start();
  RawClient client(port_);
  client.send(get("/refused") + get("/next"));
  EXPECT_EQ(client.read_answer().status, 404);
  EXPECT_EQ(client.read_answer().body, "GET /next? ");
}

TEST_F(HttpServerTest, MalformedRequestsGet400) {
  start();
  const std::vector<std::string> bad = {
      "hello\r\n\r\n",
      "GET\r\n\r\n",
      "GET / HTTP/1.1\r\nHost t\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
      "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on: TLS to a plain port\r\n\r\n"s,
  };
  for (const std::string& bytes : bad) {
    RawClient client(port_);
    client.send(bytes);
    const RawAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 400) << bytes;
    EXPECT_FALSE(answer.body.empty());
    EXPECT_TRUE(client.closed()) << bytes;
  }
  EXPECT_EQ(ask(get("/still")).status, 200);
}

TEST_F(HttpServerTest, UnknownEncodingsAndExpectationsAreNamed) {
  start();
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n").status, 501);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: t\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n").status, 417);
}

TEST_F(HttpServerTest, LimitsOnHeadersAndBodies) {
  start();
  EXPECT_EQ(ask(get("/" + std::string(5000, 'a'))).status, 431);
  std::string many;
  for (int i = 0; i < 30; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(ask(get("/", many)).status, 431);
  // Refused by its length alone.
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10000000000\r\n\r\n").status, 413);
  // And when it only turns out to be long.
  RawClient client(port_);
  client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string piece = "2710\r\n" + std::string(10000, 'x') + "\r\n";
  for (int i = 0; i < 20 && client.send(piece); ++i) continue;
  EXPECT_EQ(client.read_answer().status, 413);
}

TEST_F(HttpServerTest, ManyPipelinedRequestsAreAllAnswered) {
  start();
  RawClient client(port_);
  // More than is read ahead while the first one is being handled.
  const std::string big = post("/big", std::string(90000, 'b'));
  std::string bytes = get("/later");
  for (int i = 0; i < 8; ++i) bytes += big;
  std::thread sender([&] { client.send(bytes); });
  EXPECT_EQ(client.read_answer().body, "later");
  for (int i = 0; i < 8; ++i) EXPECT_EQ(client.read_answer().body.size(), 11u + 90000u) << i;
  sender.join();
}

TEST_F(HttpServerTest, LongHeadersArriveWhereTheyAreAllowed) {
  HttpLimits limits = small_limits();
  limits.header_bytes = 1 << 20;
  limits.header_seconds = 5;
  start(limits);
  EXPECT_EQ(ask(get("/x?" + std::string(700000, 'q'))).status, 200);
  EXPECT_EQ(ask(get("/x", "X-Long: " + std::string(700000, 'h') + "\r\n")).status, 431);
}

TEST_F(HttpServerTest, SlowHeadersAndBodiesTimeOut) {
  start();
  RawClient headers(port_);
  headers.send("GET / HTTP/1.1\r\nHos");
  RawClient body(port_);
  body.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nab");
  EXPECT_EQ(headers.read_answer().status, 408);
  EXPECT_EQ(body.read_answer().status, 408);
  RawClient silent(port_);
  EXPECT_TRUE(silent.closed());
}

TEST_F(HttpServerTest, StreamsAreChunked) {
  start();
  RawClient client(port_);
  client.send(get("/stream") + get("/after"));
  const RawAnswer head = client.read_head();
  EXPECT_EQ(head.headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(client.read_chunk(), "event 0\n");
  EXPECT_EQ(client.read_chunk(), "event 1\n");
  EXPECT_EQ(client.read_chunk(), "event 2\n");
  EXPECT_EQ(client.read_chunk(), "");
  EXPECT_EQ(client.read_answer().body, "GET /after? ");
}

TEST_F(HttpServerTest, Http10GetsNoChunksAndItsConnectionEnds) {
  start();
  RawClient client(port_);
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const RawAnswer head = client.read_head();
  EXPECT_FALSE(head.headers.contains("transfer-encoding"));
  EXPECT_EQ(head.headers.at("connection"), "close");
  EXPECT_EQ(client.take_until("event 2\n"), "event 0\nevent 1\nevent 2\n");
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, ClientThatGoesAwayWhileWaitingIsNoticed) {
  start();
  {
    RawClient client(port_);
    client.send(get("/hold"));
    ASSERT_TRUE(wait_for([&] {
      const std::lock_guard lock(handler_.mutex);
      return handler_.held != nullptr;
    }));
    EXPECT_EQ(handler_.gone, 0);
  }
  EXPECT_TRUE(wait_for([&] { return handler_.gone == 1; }));
  EXPECT_TRUE(wait_for([&] { return handler_.last_status == 499; }));
}

TEST_F(HttpServerTest, ClientThatDoesNotReadItsStreamIsGivenUp) {
  start();
  RawClient client(port_, 4096);
  client.send(get("/flood"));
  EXPECT_TRUE(wait_for([&] { return handler_.gone == 1; }));
}

TEST_F(HttpServerTest, DroppedExchangeAnswers500) {
  start();
  EXPECT_EQ(ask(get("/dropped")).status, 500);
}

TEST_F(HttpServerTest, HeaderValuesCannotSplitTheAnswer) {
  start();
  const RawAnswer answer = ask(get("/evil?v=a%0d%0aX-Injected:%201"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers.contains("x-injected"));
}

TEST_F(HttpServerTest, DrainingEndsIdleConnectionsAndKeepsAnswering) {
  start();
  RawClient idle(port_), busy(port_);
  idle.send(get("/x"));
  idle.read_answer();
  busy.send(get("/later"));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  loop_.post([this] { server_->drain(); });
  EXPECT_TRUE(idle.closed());
  const RawAnswer answer = busy.read_answer();
  EXPECT_EQ(answer.body, "later");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(ask(get("/new")).headers.at("connection"), "close");
}

}  // namespace
}  // namespace gristmill::server
