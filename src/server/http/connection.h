#pragma once
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "server/http/server.h"

namespace gristmill::server {

class Connection;
class ConnectionExchange;

/// What a connection needs of its server.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const HttpLimits& limits() const = 0;
  virtual HttpHandler& handler() = 0;
  virtual bool draining() const = 0;
  virtual void remove(Connection& connection) = 0;
};

/// One client's connection. The reader is a coroutine that never stops reading while there is room, so that a client
/// that goes away is noticed at once, also while its request waits in the engine; what it reads meanwhile (pipelined
/// requests) is kept. A client that closes its sending side counts as gone, as it does in other servers.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  Connection(Socket socket, std::shared_ptr<ConnectionHost> host, std::string peer);
  ~Connection();
  void start();
  void sweep(Clock::time_point now);
  void close_if_idle();
  /// The server ends: the exchange under way is lost.
  void abandon() { lost("was cut off by the end of the server"); }
  bool quiet() const { return !busy_ && !write_pending_ && out_.empty(); }

 private:
  friend class ConnectionExchange;
  struct Parser;

  boost::asio::awaitable<void> read();
  void spawn_reader();
  void parse();
  bool begin_message();
  void dispatch();
  void refuse(int status, const std::string& why);
  void exchange_over(bool keep_alive);
  void flush();
  void write_some();
  void written_all();
  void begin_linger();
  void lost(const char* why);
  void die();
  size_t unsent() const { return out_.size() + writing_.size() - written_; }
  void deadline_in(double seconds);

  Socket socket_;
  std::shared_ptr<ConnectionHost> host_;
  std::string peer_;
  std::array<char, 16384> chunk_;  // what the reader reads into
  std::string in_;                 // received and not yet parsed
  std::unique_ptr<Parser> parser_;
  std::weak_ptr<ConnectionExchange> exchange_;
  std::string out_;      // to be written next
  std::string writing_;  // being written
  size_t written_ = 0;
  uint64_t body_received_ = 0;
  Clock::time_point message_start_;
  Clock::time_point deadline_;
  Clock::time_point last_write_;
  bool reading_ = false;
  bool parsing_ = false;
  bool busy_ = false;  // an exchange is under way
  bool write_pending_ = false;
  bool close_after_write_ = false;
  bool lingering_ = false;  // the answer is out; what still comes in is thrown away
  bool dead_ = false;
};

}  // namespace gristmill::server
