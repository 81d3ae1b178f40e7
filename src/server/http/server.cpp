#include "server/http/server.h"

#include <unistd.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/event_loop_impl.h"

namespace gristmill::server {
namespace asio = boost::asio;

struct HttpServer::Core final : ConnectionHost, std::enable_shared_from_this<HttpServer::Core> {
  Core(EventLoop& event_loop, Listener bound, const HttpLimits& chosen, HttpHandler& wanted)
      : loop(event_loop), listening(std::move(bound)), allowed(chosen), handles(wanted) {}

  const HttpLimits& limits() const override { return allowed; }
  HttpHandler& handler() override { return handles; }
  bool draining() const override { return drains; }
  void remove(Connection& connection) override { connections.erase(&connection); }

  template <class Protocol>
  asio::awaitable<void> accept(asio::basic_socket_acceptor<Protocol> acceptor) {
    for (;;) {
      typename Protocol::socket socket(acceptor.get_executor());
      boost::system::error_code failure;
      co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, failure));
      if (failure == asio::error::operation_aborted) co_return;
      if (failure) {
        // Out of descriptors, usually: give the connections that there are time to end.
        LOG_WARNING("cannot accept a connection: ", failure.message());
        asio::steady_timer pause(acceptor.get_executor(), std::chrono::milliseconds(100));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failure));
        continue;
      }
      std::string peer = "unix";
      if constexpr (std::is_same_v<Protocol, asio::ip::tcp>) {
        boost::system::error_code ignored;
        socket.set_option(asio::ip::tcp::no_delay(true), ignored);
        const auto endpoint = socket.remote_endpoint(ignored);
        asio::ip::address address = endpoint.address();
        if (address.is_v6() && address.to_v6().is_v4_mapped()) {
          address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
        }
        peer = address.is_v6() ? cat("[", address.to_string(), "]:", endpoint.port())
                               : cat(address.to_string(), ":", endpoint.port());
      }
      auto connection = std::make_shared<Connection>(std::move(socket), shared_from_this(), std::move(peer));
      connections.emplace(connection.get(), connection);
      connection->start();
      if (!sweeping) sweep();
    }
  }

  /// Runs while there are connections.
  void sweep() {
    sweeping = !connections.empty();
    if (!sweeping) return;
    loop.after(allowed.sweep_seconds, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      for (const auto& connection : self->all()) connection->sweep(Connection::Clock::now());
      self->sweep();
    });
  }

  /// A copy: what is done to a connection may remove it.
  std::vector<std::shared_ptr<Connection>> all() const {
    std::vector<std::shared_ptr<Connection>> out;
    out.reserve(connections.size());
    for (const auto& each : connections) out.push_back(each.second);
    return out;
  }

  EventLoop& loop;
  Listener listening;
  HttpLimits allowed;
  HttpHandler& handles;
  std::unordered_map<const Connection*, std::shared_ptr<Connection>> connections;
  bool drains = false;
  bool sweeping = false;
};

HttpServer::HttpServer(EventLoop& loop, Listener listener, HttpLimits limits, HttpHandler& handler)
    : core_(std::make_shared<Core>(loop, std::move(listener), limits, handler)) {}

HttpServer::~HttpServer() {
  // Exchanges may outlive the server; none of them may reach the handler any more.
  for (const auto& connection : core_->all()) connection->abandon();
}

void HttpServer::start() {
  asio::io_context& context = core_->loop.impl().context;
  for (const int bound : core_->listening.sockets()) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    ::getsockname(bound, reinterpret_cast<sockaddr*>(&address), &length);
    // The acceptor closes what it is given; the listener keeps its own.
    const int fd = ::dup(bound);
    const auto spawn = [&](auto protocol) {
      using Protocol = decltype(protocol);
      asio::basic_socket_acceptor<Protocol> acceptor(context, protocol, fd);
      asio::co_spawn(
          context,
          [core = core_, acceptor = std::move(acceptor)]() mutable { return core->accept(std::move(acceptor)); },
          asio::detached);
    };
    if (address.ss_family == AF_UNIX) {
      spawn(asio::local::stream_protocol());
    } else {
      spawn(address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4());
    }
  }
}

void HttpServer::drain() {
  core_->drains = true;
  for (const auto& connection : core_->all()) connection->close_if_idle();
}

bool HttpServer::quiet() const {
  for (const auto& each : core_->connections) {
    if (!each.second->quiet()) return false;
  }
  return true;
}

const Listener& HttpServer::listener() const {
  return core_->listening;
}

}  // namespace gristmill::server
