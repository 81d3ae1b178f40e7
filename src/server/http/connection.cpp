#include "server/http/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <stdexcept>
#include <utility>

#include "base/log.h"
#include "server/http/answer_head.h"
#include "server/http/connection_exchange.h"
#include "server/http/growing_body.h"

namespace gristmill::server {
namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace {

constexpr size_t max_pipelined_bytes = 256 << 10;
constexpr double linger_seconds = 2;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

template <class View>
std::string text(const View& view) {
  return std::string(view.data(), view.size());
}

/// The path of a request target in origin form ("/x?y"), absolute form ("http://host/x") or asterisk form.
void split_target(std::string_view target, Request& request) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const size_t slash = target.find('/', target.find("//") + 2);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  const size_t question = target.find('?');
  request.path = percent_decode(target.substr(0, question), false);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
}

}  // namespace

struct Connection::Parser {
  http::request_parser<GrowingBody> http;
  bool headers_seen = false;
  Request request;  // without its body
};

Connection::Connection(Socket socket, std::shared_ptr<ConnectionHost> host, std::string peer)
    : socket_(std::move(socket)), host_(std::move(host)), peer_(std::move(peer)) {}

Connection::~Connection() = default;

void Connection::deadline_in(double seconds) {
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void Connection::start() {
  deadline_in(host_->limits().header_seconds);
  spawn_reader();
}

void Connection::spawn_reader() {
  reading_ = true;
  asio::co_spawn(socket_.get_executor(), [self = shared_from_this()] { return self->read(); }, asio::detached);
}

asio::awaitable<void> Connection::read() {
  for (;;) {
    boost::system::error_code failure;
    const size_t n =
        co_await socket_.async_read_some(asio::buffer(chunk_), asio::redirect_error(asio::use_awaitable, failure));
    if (dead_) co_return;
    if (failure) {
      reading_ = false;
      // Answers to earlier requests may still be on their way to a client that only closed its sending side.
      if (!busy_ && (write_pending_ || !out_.empty())) {
        close_after_write_ = true;
      } else {
        lost("closed the connection");
      }
      co_return;
    }
    if (lingering_) continue;
    in_.append(chunk_.data(), n);
    parse();
    if (dead_) co_return;
    if (busy_ && in_.size() > max_pipelined_bytes) {
      reading_ = false;
      co_return;
    }
  }
}

void Connection::parse() {
  if (parsing_) return;
  parsing_ = true;
  size_t at = 0;
  while (!dead_ && !busy_ && !close_after_write_ && !lingering_) {
    if (!parser_) {
      // Empty lines before a request are skipped (RFC 9112 section 2.2).
      while (at < in_.size() && (in_[at] == '\r' || in_[at] == '\n')) ++at;
      if (at == in_.size()) break;
      parser_ = std::make_unique<Parser>();
      parser_->http.header_limit(static_cast<uint32_t>(host_->limits().header_bytes));
      parser_->http.body_limit(host_->limits().body_bytes);
      message_start_ = Clock::now();
      body_received_ = 0;
      deadline_in(host_->limits().header_seconds);
    }
    boost::system::error_code failure;
    size_t used = 0;
    try {
      used = parser_->http.put(asio::buffer(in_.data() + at, in_.size() - at), failure);
    } catch (const std::length_error&) {
      refuse(431, "a header field exceeds 65535 bytes");  // more than Beast can hold
      break;
    }
    at += used;
    if (parser_->headers_seen) body_received_ += used;
    if (failure == http::error::need_more) break;
    if (failure) {
      if (failure == http::error::header_limit) {
        refuse(431, cat("the request's headers exceed ", host_->limits().header_bytes, " bytes"));
      } else if (failure == http::error::body_limit) {
        refuse(413, cat("the request's body exceeds ", host_->limits().body_bytes, " bytes"));
      } else {
        refuse(400, cat("invalid HTTP request: ", failure.message()));
      }
      break;
    }
    if (!parser_->headers_seen && parser_->http.is_header_done() && !begin_message()) continue;
    if (parser_->http.is_done()) {
      dispatch();
    } else if (at == in_.size()) {
      break;
    }
  }
  in_.erase(0, at);
  if (in_.empty() && in_.capacity() > max_pipelined_bytes) in_.shrink_to_fit();
  if (parser_ && parser_->headers_seen && !busy_) {
    const std::chrono::duration<double> allowed(host_->limits().body_seconds +
                                                static_cast<double>(body_received_) / host_->limits().body_rate);
    deadline_ = message_start_ + std::chrono::duration_cast<Clock::duration>(allowed);
  }
  parsing_ = false;
}

bool Connection::begin_message() {
  parser_->headers_seen = true;
  parser_->http.eager(true);
  const auto& message = parser_->http.get();
  Request& request = parser_->request;
  request.method = text(message.method_string());
  request.version = static_cast<int>(message.version());
  request.peer = peer_;
  for (const auto& field : message) request.headers.emplace_back(lower(text(field.name_string())), text(field.value()));
  split_target(text(message.target()), request);
  if (request.headers.size() > host_->limits().header_count) {
    refuse(431, cat("more than ", host_->limits().header_count, " header fields"));
    return false;
  }
  if (request.version != 10 && request.version != 11) {
    refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    return false;
  }
  if (request.version == 11 && request.count("host") != 1) {
    refuse(400, "invalid HTTP request: exactly one Host header is required");
    return false;
  }
  if (request.count("transfer-encoding") > 0 && !parser_->http.chunked()) {
    refuse(501, "the only Transfer-Encoding understood is chunked");
    return false;
  }
  const std::string expect = lower(request.header("expect"));
  if (!expect.empty() && expect != "100-continue") {
    refuse(417, cat("unknown expectation in the Expect header"));
    return false;
  }
  if (std::optional<Response> refusal = host_->handler().refuse(request)) {
    // A body that is not going to be read ends the connection.
    const bool keep = parser_->http.is_done() && message.keep_alive() && !refusal->close && !host_->draining();
    auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), std::move(request), keep, message_start_);
    parser_.reset();
    busy_ = true;
    exchange_ = exchange;
    refusal->close |= !keep;
    exchange->respond(std::move(*refusal));
    return false;
  }
  if (!expect.empty() && request.version == 11 && !parser_->http.is_done()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  return !dead_;
}

void Connection::dispatch() {
  Request request = std::move(parser_->request);
  request.body = std::move(parser_->http.get().body());
  const bool keep = parser_->http.get().keep_alive();
  parser_.reset();
  busy_ = true;
  auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), std::move(request), keep, message_start_);
  exchange_ = exchange;
  host_->handler().handle(std::move(exchange));
}

void Connection::refuse(int status, const std::string& why) {
  Request request = parser_ ? std::move(parser_->request) : Request();
  parser_.reset();
  busy_ = true;
  auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), std::move(request), false, message_start_);
  exchange_ = exchange;
  Response response = host_->handler().broken(status, why);
  response.close = true;
  exchange->respond(std::move(response));
}

void Connection::exchange_over(bool keep_alive) {
  busy_ = false;
  exchange_.reset();
  if (dead_) return;
  if (!keep_alive) close_after_write_ = true;
  deadline_in(host_->limits().idle_seconds);
  flush();
  if (dead_ || close_after_write_) return;
  parse();
  if (!dead_ && !reading_ && !(busy_ && in_.size() > max_pipelined_bytes)) spawn_reader();
}

void Connection::flush() {
  if (write_pending_ || dead_) return;
  if (out_.empty()) {
    written_all();
    return;
  }
  writing_.swap(out_);
  written_ = 0;
  last_write_ = Clock::now();
  write_some();
}

void Connection::write_some() {
  write_pending_ = true;
  socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                           [self = shared_from_this()](const boost::system::error_code& failure, size_t n) {
                             self->write_pending_ = false;
                             if (self->dead_) return;
                             if (failure) {
                               self->lost("closed the connection");
                               return;
                             }
                             self->last_write_ = Clock::now();
                             self->written_ += n;
                             if (self->written_ < self->writing_.size()) {
                               self->write_some();
                               return;
                             }
                             self->writing_.clear();
                             self->written_ = 0;
                             if (self->writing_.capacity() > max_pipelined_bytes) self->writing_.shrink_to_fit();
                             self->flush();
                           });
}

void Connection::written_all() {
  if (close_after_write_ && !busy_ && !lingering_) begin_linger();
}

/// Closing at once while the client still sends would destroy the answer on its way (RFC 9112 section 9.6).
void Connection::begin_linger() {
  if (!reading_) {
    die();
    return;
  }
  lingering_ = true;
  in_.clear();
  boost::system::error_code ignored;
  static_cast<void>(socket_.shutdown(Socket::shutdown_send, ignored));
  deadline_in(linger_seconds);
}

void Connection::lost(const char* why) {
  if (dead_) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  const std::shared_ptr<ConnectionExchange> exchange = exchange_.lock();
  if (exchange) LOG_DEBUG(peer_, " ", why, " before its answer was complete");
  die();
  if (exchange) exchange->lost();
}

void Connection::die() {
  if (dead_) return;
  dead_ = true;
  boost::system::error_code ignored;
  static_cast<void>(socket_.close(ignored));
  host_->remove(*this);
}

void Connection::sweep(Clock::time_point now) {
  if (dead_) return;
  if (write_pending_) {
    const std::chrono::duration<double> stalled = now - last_write_;
    if (stalled.count() > host_->limits().stall_seconds) lost("stopped reading");
    return;
  }
  if (busy_ || now < deadline_) return;
  if (parser_) {
    refuse(408, parser_->headers_seen ? "the request's body came too slowly" : "the request's headers came too slowly");
  } else {
    die();
  }
}

void Connection::close_if_idle() {
  if (!busy_ && !parser_ && in_.empty() && quiet() && !lingering_) die();
}

}  // namespace gristmill::server
