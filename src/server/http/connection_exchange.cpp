#include "server/http/connection_exchange.h"

#include <charconv>

#include "server/http/answer_head.h"

namespace gristmill::server {

ConnectionExchange::ConnectionExchange(std::shared_ptr<Connection> connection, Request request, bool keep_alive,
                                       Connection::Clock::time_point start)
    : connection_(std::move(connection)),
      request_(std::move(request)),
      keep_alive_(keep_alive),
      start_(start),
      body_bytes_(request_.body.size()) {}

ConnectionExchange::~ConnectionExchange() {
  if (state_ == State::waiting) {
    Response failure = connection_->host_->handler().broken(500, "the request was dropped without an answer");
    failure.close = true;
    respond(std::move(failure));
  } else if (state_ == State::streaming) {
    // The client must not take a cut stream for a complete one.
    connection_->die();
    state_ = State::gone;
    report();
  }
}

void ConnectionExchange::add_header(std::string name, std::string value) {
  headers_.emplace_back(std::move(name), std::move(value));
}

void ConnectionExchange::respond(Response response) {
  if (state_ != State::waiting) return;
  status_ = response.status;
  answer_bytes_ = response.body.size();
  const bool keep = keep_alive_ && !response.close && !connection_->host_->draining();
  for (auto& header : headers_) response.headers.push_back(std::move(header));
  append_head(connection_->out_, response, request_.version, keep, BodyFraming::length);
  if (request_.method != "HEAD") connection_->out_ += response.body;
  over(keep);
}

void ConnectionExchange::start_stream(Response head) {
  if (state_ != State::waiting) return;
  state_ = State::streaming;
  status_ = head.status;
  chunked_ = request_.version == 11;
  keep_alive_ = keep_alive_ && chunked_ && !head.close && !connection_->host_->draining();
  for (auto& header : headers_) head.headers.push_back(std::move(header));
  append_head(connection_->out_, head, request_.version, keep_alive_,
              chunked_ ? BodyFraming::chunked : BodyFraming::until_close);
}

void ConnectionExchange::write(std::string_view bytes) {
  if (state_ != State::streaming || bytes.empty()) return;
  answer_bytes_ += bytes.size();
  std::string& out = connection_->out_;
  if (chunked_) {
    char size[18];
    char* end = std::to_chars(size, size + 16, bytes.size(), 16).ptr;
    *end++ = '\r';
    *end++ = '\n';
    out.append(size, end);
    out.append(bytes);
    out += "\r\n";
  } else {
    out.append(bytes);
  }
  if (connection_->unsent() > connection_->host_->limits().stream_bytes) {
    connection_->lost("reads its stream too slowly");
    return;
  }
  connection_->flush();
}

void ConnectionExchange::finish() {
  if (state_ != State::streaming) return;
  if (chunked_) connection_->out_ += "0\r\n\r\n";
  over(keep_alive_);
}

void ConnectionExchange::over(bool keep_alive) {
  state_ = State::done;
  gone_callback_ = nullptr;
  report();
  connection_->exchange_over(keep_alive);
}

void ConnectionExchange::lost() {
  if (state_ == State::done || state_ == State::gone) return;
  state_ = State::gone;
  status_ = 499;
  report();
  if (auto callback = std::exchange(gone_callback_, nullptr)) callback();
}

void ConnectionExchange::report() {
  const std::chrono::duration<double> took = Connection::Clock::now() - start_;
  connection_->host_->handler().answered(request_, status_, body_bytes_, answer_bytes_, took.count());
}

}  // namespace gristmill::server
