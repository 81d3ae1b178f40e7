#include "cli/chat.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/json.hpp>
#include <csignal>
#include <thread>

#include "base/error.h"

namespace gristmill::cli {
namespace {

namespace json = boost::json;

// Answers "echo: " and the last message; remembers what it was sent.
class EchoBackend final : public ChatBackend {
 public:
  Reply reply(const json::array& messages, const std::function<void(std::string_view)>& text,
              Interrupts& interrupts) override {
    conversations.push_back(json::serialize(messages));
    const std::string last(messages.back().at("content").as_string());
    if (last == "fail") throw Error("the backend failed");
    text("echo: ");
    if (last == "interrupt") {
      raise(SIGINT);
      if (interrupts.wait(-1, false, 5000) != Interrupts::Event::interrupt) throw Error("no interrupt came");
      return {"", true};
    }
    text(last);
    return {"stop", false};
  }
  std::string name() const override { return "echo"; }
  std::vector<std::string> conversations;
};

struct Session {
  int status = -1;
  std::string output;
  std::string error;
};

Session run(ChatBackend& backend, const std::string& input, bool terminal, const std::string& system = "") {
  int in[2], out[2];
  EXPECT_EQ(pipe(in), 0);
  EXPECT_EQ(pipe(out), 0);
  EXPECT_EQ(write(in[1], input.data(), input.size()), static_cast<ssize_t>(input.size()));
  close(in[1]);
  Session session;
  {
    Interrupts interrupts;
    try {
      session.status = run_chat_session(backend, interrupts, system, in[0], out[1], terminal);
    } catch (const Error& error) {
      session.error = error.what();
    }
  }
  close(out[1]);
  char bytes[4096];
  for (ssize_t got; (got = read(out[0], bytes, sizeof(bytes))) > 0;)
    session.output.append(bytes, static_cast<size_t>(got));
  close(in[0]);
  close(out[0]);
  return session;
}

TEST(ChatSession, ScriptsGetRepliesAndNothingElse) {
  EchoBackend echo;
  const Session session = run(echo, "one\r\n\n  \ntwo", false, "Be brief.");
  EXPECT_EQ(session.output, "echo: one\necho: two\n");
  EXPECT_EQ(session.status, 0);
  ASSERT_EQ(echo.conversations.size(), 2u);
  EXPECT_EQ(echo.conversations[1], R"([{"role":"system","content":"Be brief."},{"role":"user","content":"one"},)"
                                   R"({"role":"assistant","content":"echo: one"},{"role":"user","content":"two"}])");
}

TEST(ChatSession, CommandsResetAndQuit) {
  EchoBackend echo;
  const Session session = run(echo, "one\n/reset\ntwo\n/quit\nthree\n", false, "S");
  EXPECT_EQ(session.output, "echo: one\necho: two\n");
  EXPECT_EQ(echo.conversations.back(), R"([{"role":"system","content":"S"},{"role":"user","content":"two"}])");
}

TEST(ChatSession, ATerminalGetsPromptsHelpAndErrors) {
  EchoBackend echo;
  const Session session = run(echo, "/help\n/hlep\nfail\none\n", true);
  EXPECT_EQ(session.status, 0);
  EXPECT_EQ(session.output.find("> /reset"), 0u) << session.output;
  EXPECT_NE(session.output.find("No command /hlep"), std::string::npos) << session.output;
  EXPECT_NE(session.output.find("error: the backend failed\n> echo: one\n> \n"), std::string::npos) << session.output;
  EXPECT_EQ(echo.conversations.back(), R"([{"role":"user","content":"one"}])") << "a failed message is forgotten";
}

TEST(ChatSession, AFailureEndsAScript) {
  EchoBackend echo;
  const Session session = run(echo, "one\nfail\ntwo\n", false);
  EXPECT_EQ(session.error, "the backend failed");
  EXPECT_EQ(echo.conversations.size(), 2u);
}

TEST(ChatSession, AnInterruptStopsTheReplyAndTheConversationGoesOn) {
  EchoBackend echo;
  const Session session = run(echo, "interrupt\ntwo\n", true);
  EXPECT_EQ(session.output, "> echo:  [stopped]\n> echo: two\n> \n");
  EXPECT_NE(echo.conversations.back().find(R"({"role":"assistant","content":"echo: "})"), std::string::npos);
  EXPECT_EQ(run(echo, "interrupt\ntwo\n", false).status, 130);
}

TEST(ChatSession, ControlCharactersDoNotReachATerminal) {
  EchoBackend echo;
  EXPECT_NE(run(echo, "a\x1b[31m\u009b\tb\u00e9\n", true).output.find("echo: a[31m\tb\u00e9\n"), std::string::npos);
  EXPECT_EQ(run(echo, "a\x1b\n", false).output, "echo: a\x1b\n");
}

TEST(InterruptsTest, ASecondSignalBeforeTheFirstIsTakenEndsTheProgram) {
  const pid_t child = fork();
  if (child == 0) {
    Interrupts interrupts;
    raise(SIGINT);
    if (!interrupts.take()) _exit(1);
    raise(SIGINT);
    raise(SIGINT);
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

// Accepts connections one after the other on a port of its own, and answers each with the next text.
class CannedServer {
 public:
  explicit CannedServer(std::vector<std::string> answers) : answers_(std::move(answers)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 4) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("cannot listen");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~CannedServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> requests;

 private:
  void serve() {
    for (const std::string& answer : answers_) {
      const int file = accept(listener_, nullptr, nullptr);
      if (file < 0) return;
      std::string request;
      char bytes[4096];
      size_t expected = std::string::npos;
      while (request.size() < expected) {
        const ssize_t got = recv(file, bytes, sizeof(bytes), 0);
        if (got <= 0) break;
        request.append(bytes, static_cast<size_t>(got));
        const size_t head = request.find("\r\n\r\n");
        if (head == std::string::npos) continue;
        const size_t length = request.find("Content-Length: ");
        expected = head + 4 + (length == std::string::npos ? 0 : std::stoul(request.substr(length + 16)));
      }
      requests.push_back(request);
      for (size_t at = 0; at < answer.size(); at += 5) {  // in small pieces
        if (send(file, answer.data() + at, std::min<size_t>(5, answer.size() - at), MSG_NOSIGNAL) < 0) break;
      }
      if (answer.ends_with("HANG")) {
        while (recv(file, bytes, sizeof(bytes), 0) > 0) {
        }
      }
      close(file);
    }
  }
  std::vector<std::string> answers_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

std::string plain(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

std::string chunked(const std::vector<std::string>& chunks, const std::string& end = "0\r\n\r\n") {
  std::string text = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& chunk : chunks) {
    char size[16];
    std::snprintf(size, sizeof(size), "%zx\r\n", chunk.size());
    text += size + chunk + "\r\n";
  }
  return text + end;
}

std::string delta(const std::string& fields, const std::string& finish = "null") {
  return R"(data: {"choices":[{"index":0,"delta":{)" + fields + R"(},"finish_reason":)" + finish + "}]}\n\n";
}

const std::string models = R"({"object":"list","data":[{"id":"first-model"},{"id":"second"}]})";
const json::array question{{{"role", "user"}, {"content", "Hi"}}};

std::string reply_text(ChatBackend& backend, ChatBackend::Reply* reply = nullptr) {
  Interrupts interrupts;
  std::string text;
  const ChatBackend::Reply got = backend.reply(question, [&](std::string_view piece) { text += piece; }, interrupts);
  if (reply != nullptr) *reply = got;
  return text;
}

TEST(HttpChat, SendsWhatWasAskedFor) {
  std::vector<std::string> requests;
  {
    CannedServer server({plain(200, models), chunked({delta("", R"("stop")") + "data: [DONE]\n\n"})});
    ChatSampling sampling;
    sampling.temperature = 0.5;
    sampling.max_tokens = 7;
    const auto chat = make_http_chat(server.url(), "", "secret", sampling);
    EXPECT_EQ(chat->name(), "first-model at " + server.url());
    EXPECT_EQ(reply_text(*chat), "");
    requests = server.requests;
  }
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].find("GET /v1/models HTTP/1.1\r\n"), 0u) << requests[0];
  EXPECT_EQ(requests[1].find("POST /v1/chat/completions HTTP/1.1\r\n"), 0u) << requests[1];
  EXPECT_NE(requests[1].find("Authorization: Bearer secret\r\n"), std::string::npos) << requests[1];
  const json::object body = json::parse(requests[1].substr(requests[1].find("\r\n\r\n") + 4)).as_object();
  EXPECT_EQ(body.at("model"), "first-model");
  EXPECT_EQ(body.at("messages"), json::value(question));
  EXPECT_EQ(body.at("stream"), true);
  EXPECT_EQ(body.at("temperature"), 0.5);
  EXPECT_EQ(body.at("max_tokens"), 7);
  EXPECT_FALSE(body.contains("top_p"));
}

TEST(HttpChat, JoinsTheDeltas) {
  CannedServer server({chunked({delta(R"("role":"assistant","content":"")"), delta(R"("content":"Gr\u00fc")"),
                                delta(R"("content":"\u00df Gott")") + delta("", R"("stop")"),
                                "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n"})});
  const auto chat = make_http_chat(server.url() + "/v1", "named", "", {});
  ChatBackend::Reply reply;
  EXPECT_EQ(reply_text(*chat, &reply), "Gr\u00fc\u00df Gott");
  EXPECT_EQ(reply.finish_reason, "stop");
  EXPECT_FALSE(reply.interrupted);
}

std::string failure_of(std::vector<std::string> answers) {
  CannedServer server(std::move(answers));
  try {
    const auto chat = make_http_chat(server.url(), "named", "", {});
    reply_text(*chat);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(HttpChat, FailuresOfTheServerAreTold) {
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(failure_of({plain(400, R"({"error":{"message":"max_tokens is too large","code":400}})")}),
         "status 400: max_tokens is too large");
  expect(failure_of({plain(502, "Bad gateway")}), "status 502: Bad gateway");
  expect(failure_of({chunked({delta(R"("content":"x")"), "data: {\"error\":{\"message\":\"the engine died\"}}\n\n"})}),
         "the engine died");
  expect(failure_of({chunked({delta(R"("content":"x")")})}), "ended the reply early");
  expect(failure_of({chunked({delta(R"("content":"x")")}, "")}), "partial");
  expect(failure_of({chunked({"data: {broken\n\n"})}), "not JSON");
  expect(failure_of({"nonsense\r\n\r\n"}), "http://127.0.0.1");
  EXPECT_THROW(make_http_chat("http://127.0.0.1:1", "", "", {}), Error);
  CannedServer server({plain(200, R"({"data":[]})")});
  EXPECT_THROW(make_http_chat(server.url(), "", "", {}), Error);
}

TEST(HttpChat, AnInterruptEndsAHangingReply) {
  CannedServer server({chunked({delta(R"("content":"first ")")}, "HANG")});
  const auto chat = make_http_chat(server.url(), "named", "", {});
  Interrupts interrupts;
  std::string text;
  const ChatBackend::Reply reply = chat->reply(
      question,
      [&](std::string_view piece) {
        text += piece;
        raise(SIGINT);
      },
      interrupts);
  EXPECT_EQ(text, "first ");
  EXPECT_TRUE(reply.interrupted);
}

TEST(ChatCommand, AWrongCommandLineIsStatusTwo) {
  EXPECT_EQ(chat({"--nonsense"}), 2);
  EXPECT_EQ(chat({"--model", "x.gguf", "--url", "http://127.0.0.1"}), 2);
  EXPECT_EQ(chat({"--max-tokens", "0"}), 2);
  EXPECT_EQ(chat({"--help"}), 0);
  EXPECT_THROW(chat({"--model", "/nonexistent.gguf"}), Error);
}

}  // namespace
}  // namespace gristmill::cli
