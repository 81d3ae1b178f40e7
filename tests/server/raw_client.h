#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace gristmill::server {

struct RawAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< lower-case names
  std::string body;
};

/// A socket and just enough HTTP to send anything and read answers. Every wait ends after a few seconds.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("connect");
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  /// False once the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  /// True when the server has closed the connection and nothing is left to read.
  bool closed(int wait_ms = 3000) {
    while (buffer_.empty()) {
      if (!fill(wait_ms)) return eof_;
    }
    return false;
  }
  RawAnswer read_answer() {
    RawAnswer answer = read_head();
    if (answer.headers.contains("transfer-encoding")) {
      for (;;) {
        const std::string chunk = read_chunk();
        if (chunk.empty()) break;
        answer.body += chunk;
      }
    } else if (answer.headers.contains("content-length")) {
      answer.body = take(std::stoul(answer.headers["content-length"]));
    }
    return answer;
  }
  RawAnswer read_head() {
    std::string head = take_until("\r\n\r\n");
    RawAnswer answer;
    answer.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n"); at != std::string::npos && at + 2 < head.size();
         at = head.find("\r\n", at + 2)) {
      const std::string line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
      const size_t colon = line.find(": ");
      if (colon == std::string::npos) continue;
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      answer.headers[name] = line.substr(colon + 2);
    }
    return answer;
  }
  /// The next chunk of a chunked body; empty at its end.
  std::string read_chunk() {
    const size_t size = std::stoul(take_until("\r\n"), nullptr, 16);
    const std::string chunk = take(size);
    take(2);
    return chunk;
  }
  std::string take_until(const std::string& mark) {
    size_t at;
    while ((at = buffer_.find(mark)) == std::string::npos) {
      if (!fill(5000)) throw std::runtime_error("no more bytes; have: " + buffer_);
    }
    return take(at + mark.size());
  }

 private:
  std::string take(size_t n) {
    while (buffer_.size() < n) {
      if (!fill(5000)) throw std::runtime_error("no more bytes; have: " + buffer_);
    }
    std::string out = buffer_.substr(0, n);
    buffer_.erase(0, n);
    return out;
  }
  bool fill(int wait_ms) {
    pollfd wait{socket_, POLLIN, 0};
    if (::poll(&wait, 1, wait_ms) <= 0) return false;
    char chunk[65536];
    const ssize_t n = ::recv(socket_, chunk, sizeof chunk, 0);
    eof_ = n <= 0;
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(n));
    return true;
  }

  int socket_ = -1;
  bool eof_ = false;
  std::string buffer_;
};

inline std::string get(const std::string& path, const std::string& headers = {}) {
  return "GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n";
}

inline std::string post(const std::string& path, const std::string& body, const std::string& headers = {}) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

}  // namespace gristmill::server
