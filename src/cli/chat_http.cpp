#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/chat_backend.h"
#include "cli/event_stream.h"
#include "cli/server_url.h"

namespace gristmill::cli {
namespace {

namespace json = boost::json;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;

constexpr int connect_milliseconds = 5000;

/// A TCP connection whose calls end with operation_aborted when a SIGINT comes: Asio's own blocking calls go on.
class Connection {
 public:
  Connection(const ServerUrl& url, Interrupts& interrupts) : interrupts_(interrupts) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int code = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found); code != 0) {
      throw Error(cat("no address for ", url.host, ": ", gai_strerror(code)));
    }
    int problem = ECONNREFUSED;
    for (const addrinfo* at = found; at != nullptr && file_ < 0; at = at->ai_next) problem = connect_to(*at);
    freeaddrinfo(found);
    if (file_ < 0) throw Error(std::strerror(problem));
    const int on = 1;
    setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  ~Connection() {
    if (file_ >= 0) close(file_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Beast's SyncReadStream and SyncWriteStream.
  template <class Buffers>
  size_t read_some(const Buffers& buffers, ErrorCode& error) {
    return transfer(boost::asio::buffer_sequence_begin(buffers), boost::asio::buffer_sequence_end(buffers), false,
                    error);
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers, ErrorCode& error) {
    return transfer(boost::asio::buffer_sequence_begin(buffers), boost::asio::buffer_sequence_end(buffers), true,
                    error);
  }
  template <class Buffers>
  size_t read_some(const Buffers& buffers) {
    return checked(&Connection::read_some<Buffers>, buffers);
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers) {
    return checked(&Connection::write_some<Buffers>, buffers);
  }

 private:
  int connect_to(const addrinfo& address) {
    const int file = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
    if (file < 0) return errno;
    int problem = 0;
    if (connect(file, address.ai_addr, address.ai_addrlen) != 0) {
      problem = errno;
      if (problem == EINPROGRESS) {
        const Interrupts::Event event = interrupts_.wait(file, true, connect_milliseconds);
        socklen_t size = sizeof(problem);
        getsockopt(file, SOL_SOCKET, SO_ERROR, &problem, &size);
        if (event == Interrupts::Event::timeout) problem = ETIMEDOUT;
        if (event == Interrupts::Event::interrupt) problem = EINTR;
      }
    }
    if (problem == 0) {
      file_ = file;
    } else {
      close(file);
    }
    return problem;
  }

  template <class Iterator>
  size_t transfer(Iterator at, const Iterator& end, bool write, ErrorCode& error) {
    error = {};
    while (at != end && boost::asio::buffer_size(*at) == 0) ++at;
    if (at == end) return 0;
    while (true) {
      if (interrupts_.wait(file_, write) == Interrupts::Event::interrupt) {
        error = boost::asio::error::operation_aborted;
        return 0;
      }
      ssize_t done;
      if constexpr (std::is_convertible_v<decltype(*at), boost::asio::mutable_buffer>) {
        const boost::asio::mutable_buffer buffer = *at;
        done = recv(file_, buffer.data(), buffer.size(), 0);
      } else {
        const boost::asio::const_buffer buffer = *at;
        done = send(file_, buffer.data(), buffer.size(), MSG_NOSIGNAL);
      }
      if (done > 0) return static_cast<size_t>(done);
      if (done == 0) {
        error = boost::asio::error::eof;
        return 0;
      }
      if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) continue;
      error = ErrorCode(errno, boost::system::system_category());
      return 0;
    }
  }
  template <class Member, class Buffers>
  size_t checked(Member member, const Buffers& buffers) {
    ErrorCode error;
    const size_t size = (this->*member)(buffers, error);
    if (error) throw boost::system::system_error(error);
    return size;
  }

  Interrupts& interrupts_;
  int file_ = -1;
};

// The message inside an OpenAI error body, or the body itself.
std::string error_message(const std::string& body) {
  ErrorCode error;
  const json::value value = json::parse(body, error);
  if (!error && value.is_object()) {
    const json::value* inner = value.get_object().if_contains("error");
    if (inner != nullptr && inner->is_object()) inner = inner->get_object().if_contains("message");
    if (inner != nullptr && inner->is_string()) return std::string(inner->get_string());
  }
  return body.substr(0, 300);
}

class HttpChat final : public ChatBackend {
 public:
  HttpChat(const std::string& url, std::string model, std::string api_key, const ChatSampling& sampling)
      : url_(url),
        parts_(parse_server_url(url)),
        model_(std::move(model)),
        api_key_(std::move(api_key)),
        sampling_(sampling) {
    if (model_.empty()) model_ = first_model();
  }

  std::string name() const override { return cat(model_, " at ", url_); }

  Reply reply(const json::array& messages, const std::function<void(std::string_view)>& text,
              Interrupts& interrupts) override {
    json::object body{{"model", model_}, {"messages", messages}, {"stream", true}};
    const auto put = [&](const char* name, const auto& value) {
      if (value) body[name] = *value;
    };
    put("temperature", sampling_.temperature);
    put("top_p", sampling_.top_p);
    put("min_p", sampling_.min_p);
    put("top_k", sampling_.top_k);
    put("repetition_penalty", sampling_.repetition_penalty);
    put("presence_penalty", sampling_.presence_penalty);
    put("frequency_penalty", sampling_.frequency_penalty);
    put("seed", sampling_.seed);
    body["max_tokens"] = sampling_.max_tokens;

    Reply reply;
    EventStream events;
    bool done = false;
    const bool whole = exchange(
        http::verb::post, "/v1/chat/completions", json::serialize(body),
        [&](std::string_view bytes) {
          for (const std::string& event : events.push(bytes)) {
            if (event == "[DONE]") {
              done = true;
            } else if (!done) {
              take_event(event, reply, text);
            }
          }
        },
        interrupts);
    reply.interrupted = !whole;
    if (whole && !done) throw Error("the server ended the reply early");
    return reply;
  }

 private:
  std::string first_model() {
    std::string body;
    Interrupts interrupts;
    if (!exchange(http::verb::get, "/v1/models", "", [&](std::string_view bytes) { body += bytes; }, interrupts)) {
      throw Error("interrupted");
    }
    ErrorCode error;
    const json::value value = json::parse(body, error);
    const json::value* data = !error && value.is_object() ? value.get_object().if_contains("data") : nullptr;
    if (data == nullptr || !data->is_array() || data->get_array().empty() || !data->get_array()[0].is_object()) {
      throw Error(cat(url_, ": the server lists no model"));
    }
    const json::value* id = data->get_array()[0].get_object().if_contains("id");
    if (id == nullptr || !id->is_string()) throw Error(cat(url_, ": the server lists no model"));
    return std::string(id->get_string());
  }

  static void take_event(const std::string& event, Reply& reply, const std::function<void(std::string_view)>& text) {
    ErrorCode error;
    const json::value value = json::parse(event, error);
    if (error || !value.is_object()) throw Error("the server sent an event that is not JSON");
    const json::object& chunk = value.get_object();
    if (chunk.contains("error")) throw Error(error_message(event));
    const json::value* choices = chunk.if_contains("choices");
    if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
    const json::value& choice = choices->get_array()[0];
    if (!choice.is_object()) return;
    if (const json::value* delta = choice.get_object().if_contains("delta"); delta != nullptr && delta->is_object()) {
      const json::value* content = delta->get_object().if_contains("content");
      if (content != nullptr && content->is_string())
        text({content->get_string().data(), content->get_string().size()});
    }
    const json::value* finish = choice.get_object().if_contains("finish_reason");
    if (finish != nullptr && finish->is_string()) reply.finish_reason = finish->get_string();
  }

  // Sends a request and passes the body of a good answer to `sink` as it comes. False when a SIGINT ended it.
  bool exchange(http::verb verb, const std::string& path, const std::string& body,
                const std::function<void(std::string_view)>& sink, Interrupts& interrupts) {
    const auto fail = [&](const std::string& what) -> Error { return Error(cat(url_, ": ", what)); };
    std::unique_ptr<Connection> connection;
    try {
      connection = std::make_unique<Connection>(parts_, interrupts);
    } catch (const Error& error) {
      throw fail(cat("no server answers: ", error.what(),
                     "; start one with gristmill serve, or chat without it: gristmill chat --model PATH.gguf"));
    }
    http::request<http::string_body> request(verb, parts_.prefix + path, 11);
    request.set(
        http::field::host,
        cat(parts_.host.find(':') == std::string::npos ? parts_.host : cat('[', parts_.host, ']'), ':', parts_.port));
    request.set(http::field::user_agent, "gristmill-chat");
    request.set(http::field::connection, "close");
    if (!api_key_.empty()) request.set(http::field::authorization, "Bearer " + api_key_);
    if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();

    ErrorCode error;
    http::write(*connection, request, error);
    boost::beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    if (!error) http::read_header(*connection, buffer, parser, error);
    const auto interrupted = [&] { return error == boost::asio::error::operation_aborted; };
    if (interrupted()) return false;
    if (error) throw fail(error.message());
    const bool good = parser.get().result() == http::status::ok;
    std::string refusal;
    while (!parser.is_done()) {
      char bytes[8192];
      parser.get().body().data = bytes;
      parser.get().body().size = sizeof(bytes);
      parser.get().body().more = true;
      http::read_some(*connection, buffer, parser, error);
      if (error == http::error::need_buffer) error = {};
      if (interrupted()) return false;
      if (error) throw fail(error.message());
      const std::string_view got(bytes, sizeof(bytes) - parser.get().body().size);
      if (good) {
        sink(got);
      } else if (refusal.size() < 65536) {
        refusal += got;
      }
    }
    if (parser.get().result() == http::status::unauthorized) {
      throw fail("the server wants a key: give --api-key or VLLM_API_KEY");
    }
    if (!good) throw fail(cat("status ", parser.get().result_int(), ": ", error_message(refusal)));
    return true;
  }

  std::string url_;
  ServerUrl parts_;
  std::string model_, api_key_;
  ChatSampling sampling_;
};

}  // namespace

std::unique_ptr<ChatBackend> make_http_chat(const std::string& url, const std::string& model,
                                            const std::string& api_key, const ChatSampling& sampling) {
  return std::make_unique<HttpChat>(url, model, api_key, sampling);
}

}  // namespace gristmill::cli
