#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "server/http/event_loop.h"
#include "server/http/listener.h"
#include "server/http/message.h"

namespace gristmill::server {

/// What one client may cost.
struct HttpLimits {
  size_t header_bytes = 64 << 10;
  size_t header_count = 256;
  size_t body_bytes = 64 << 20;
  double header_seconds = 30;     ///< from a request's first byte (or the connection's start) to the end of its headers
  double body_seconds = 30;       ///< grace of a body; it must also arrive at body_rate
  double body_rate = 4096;        ///< bytes a second, on average
  double idle_seconds = 75;       ///< between two requests of a connection
  double stall_seconds = 30;      ///< a client that takes no byte of its answer for so long counts as gone
  size_t stream_bytes = 4 << 20;  ///< so many bytes of a stream may wait for the client
  double sweep_seconds = 0.5;     ///< how often the times above are looked at
};

/// What the server asks of the program. Called on the loop; must not throw.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// After the headers, before the body is read: an answer that refuses the request, or nothing. `request.body` is
  /// empty.
  virtual std::optional<Response> refuse(const Request& request) = 0;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  /// After the answer (status 499: the client went away first).
  virtual void answered(const Request& request, int status, uint64_t body_bytes, uint64_t answer_bytes,
                        double seconds) = 0;
  /// The answer to bytes that are no HTTP request, or break a limit.
  virtual Response broken(int status, const std::string& why) = 0;
};

/// HTTP/1.1 with keep-alive, pipelining, chunked bodies and streamed answers over TCP and UNIX sockets (RFC 9112).
/// Everything happens on the loop.
class HttpServer {
 public:
  HttpServer(EventLoop& loop, Listener listener, HttpLimits limits, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Begins to accept. On the loop, or before it runs.
  void start();
  /// Idle connections are closed and every further answer ends its connection; new ones are still accepted.
  void drain();
  /// Nothing is being handled and nothing waits to be written.
  bool quiet() const;
  const Listener& listener() const;

  struct Core;

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace gristmill::server
