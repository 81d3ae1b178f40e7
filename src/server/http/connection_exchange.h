#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/http/connection.h"

namespace gristmill::server {

/// The exchange of a connection's current request.
class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, Request request, bool keep_alive,
                     Connection::Clock::time_point start);
  ~ConnectionExchange() override;

  Request& request() override { return request_; }
  void add_header(std::string name, std::string value) override;
  void respond(Response response) override;
  void start_stream(Response head) override;
  void write(std::string_view bytes) override;
  void finish() override;
  void on_gone(std::function<void()> callback) override { gone_callback_ = std::move(callback); }
  bool gone() const override { return state_ == State::gone; }

  /// The connection is dead.
  void lost();

 private:
  enum class State : uint8_t { waiting, streaming, done, gone };
  void over(bool keep_alive);
  void report();

  std::shared_ptr<Connection> connection_;
  Request request_;
  bool keep_alive_;
  bool chunked_ = false;
  Connection::Clock::time_point start_;
  State state_ = State::waiting;
  int status_ = 0;
  uint64_t body_bytes_ = 0;
  uint64_t answer_bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> headers_;
  std::function<void()> gone_callback_;
};

}  // namespace gristmill::server
