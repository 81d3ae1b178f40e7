#include "server/http/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace gristmill::server {
namespace {

constexpr int backlog = 2048;

std::string reason(int error) {
  return std::strerror(error);
}

std::string show(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return cat(v6 ? "[" : "", host, v6 ? "]" : "", ":", port);
}

[[noreturn]] void fail_to_bind(const std::string& host, uint16_t port, int error) {
  const std::string where = show(host.empty() ? "0.0.0.0" : host, port);
  if (error == EADDRINUSE) {
    const std::string owner = port_owner(port);
    throw Error(cat("port ", port, " is already in use (", where, ")", owner.empty() ? "" : ", held by ", owner,
                    ": stop that process or choose another with --port"));
  }
  if (error == EACCES) {
    throw Error(cat("cannot listen on ", where, ": ", reason(error),
                    "; ports below 1024 need privileges, choose another with --port"));
  }
  throw Error(cat("cannot listen on ", where, ": ", reason(error), "; check --host and --port"));
}

/// A listening socket, or -1 with errno.
int try_listen(int family, const sockaddr* address, socklen_t length, bool dual) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int v6_only = dual ? 0 : 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  if (::bind(fd, address, length) == 0 && ::listen(fd, backlog) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

Listener::Listener(ListenAddress address) : address_(std::move(address)) {
  try {
    if (address_.socket.empty()) {
      listen_tcp();
    } else {
      listen_unix();
    }
  } catch (...) {
    close();
    throw;
  }
}

Listener::Listener(Listener&& other) noexcept
    : address_(std::move(other.address_)), sockets_(std::exchange(other.sockets_, {})) {}

Listener::~Listener() {
  close();
}

void Listener::close() {
  if (!sockets_.empty() && !address_.socket.empty()) ::unlink(address_.socket.c_str());
  for (const int fd : sockets_) ::close(fd);
  sockets_.clear();
}

void Listener::listen_tcp() {
  if (address_.host.empty()) {
    // One socket for both families; machines without IPv6 get a plain IPv4 one.
    sockaddr_in6 any6{};
    any6.sin6_family = AF_INET6;
    any6.sin6_addr = in6addr_any;
    any6.sin6_port = htons(address_.port);
    int fd = try_listen(AF_INET6, reinterpret_cast<sockaddr*>(&any6), sizeof any6, true);
    if (fd < 0 && errno == EADDRINUSE) fail_to_bind("", address_.port, EADDRINUSE);
    if (fd < 0) {
      sockaddr_in any4{};
      any4.sin_family = AF_INET;
      any4.sin_addr.s_addr = htonl(INADDR_ANY);
      any4.sin_port = htons(address_.port);
      fd = try_listen(AF_INET, reinterpret_cast<sockaddr*>(&any4), sizeof any4, false);
      if (fd < 0) fail_to_bind("", address_.port, errno);
    }
    sockets_.push_back(fd);
    address_.port = bound_port(fd);
    return;
  }
  std::string host = address_.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (status != 0) throw Error(cat("--host ", address_.host, ": ", ::gai_strerror(status)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, each->ai_addr, each->ai_addrlen);
    if (each->ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = htons(address_.port);
    } else if (each->ai_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(address_.port);
    } else {
      continue;
    }
    const int fd = try_listen(each->ai_family, reinterpret_cast<sockaddr*>(&address), each->ai_addrlen, false);
    if (fd >= 0) {
      sockets_.push_back(fd);
      address_.port = bound_port(fd);
    } else {
      error = errno;
      // "localhost" may name an address family that this machine lacks; a taken port is never skipped.
      if (error == EADDRINUSE) fail_to_bind(host, address_.port, error);
    }
  }
  if (sockets_.empty()) fail_to_bind(host, address_.port, error);
}

void Listener::listen_unix() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (address_.socket.size() >= sizeof address.sun_path) {
    throw Error(cat("--uds ", address_.socket, ": longer than ", sizeof address.sun_path - 1, " characters"));
  }
  std::memcpy(address.sun_path, address_.socket.c_str(), address_.socket.size() + 1);
  struct stat existing{};
  if (::lstat(address.sun_path, &existing) == 0) {
    if (!S_ISSOCK(existing.st_mode)) throw Error(cat("--uds ", address_.socket, ": exists and is no socket"));
    // A socket that nobody answers is left over from a server that was killed.
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool answered = ::connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(probe);
    if (answered) throw Error(cat("--uds ", address_.socket, ": another server is listening there"));
    ::unlink(address.sun_path);
  }
  const int fd = try_listen(AF_UNIX, reinterpret_cast<sockaddr*>(&address), sizeof address, false);
  if (fd < 0) throw Error(cat("--uds ", address_.socket, ": ", reason(errno)));
  sockets_.push_back(fd);
}

std::string Listener::url() const {
  if (!address_.socket.empty()) return cat("unix:", address_.socket);
  return cat("http://", show(address_.host.empty() ? "0.0.0.0" : address_.host, address_.port));
}

}  // namespace gristmill::server
