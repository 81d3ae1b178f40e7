#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace gristmill::server {

struct ListenAddress {
  std::string host;    ///< name or number; empty: all interfaces, IPv6 and IPv4
  uint16_t port = 0;   ///< 0: any free one
  std::string socket;  ///< path of a UNIX socket; then host and port are not used
};

/// Sockets that are bound and listening. Owns them (and a UNIX socket's file).
class Listener {
 public:
  /// Throws Error naming the address, the reason and, for a taken port, the process that holds it where that can be
  /// seen.
  explicit Listener(ListenAddress address);
  ~Listener();
  Listener(Listener&& other) noexcept;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  Listener& operator=(Listener&&) = delete;

  const std::vector<int>& sockets() const { return sockets_; }
  uint16_t port() const { return address_.port; }
  /// "http://127.0.0.1:8000", as users can paste it; all interfaces read 0.0.0.0.
  std::string url() const;
  void close();

 private:
  void listen_tcp();
  void listen_unix();

  ListenAddress address_;
  std::vector<int> sockets_;
};

/// "python3 (process 4242)" for the process that listens on a TCP port; empty when it cannot be seen.
std::string port_owner(uint16_t port);

}  // namespace gristmill::server
