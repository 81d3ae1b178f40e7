#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gristmill::server {

/// A parsed HTTP request. Header names are lower-case.
struct Request {
  std::string method;  ///< as sent
  std::string path;    ///< without the query, percent-decoded
  std::string query;   ///< after '?', as sent
  std::string body;
  std::string peer;  ///< "127.0.0.1:53412", "[::1]:53412" or "unix"
  std::vector<std::pair<std::string, std::string>> headers;
  int version = 11;  ///< 10 or 11

  /// The first header of that (lower-case) name; empty when there is none.
  std::string_view header(std::string_view name) const;
  size_t count(std::string_view name) const;
  /// The value of one query parameter, percent-decoded; empty when there is none.
  std::string query_value(std::string_view name) const;
};

/// A complete answer, or the head of a streamed one.
struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool close = false;  ///< end the connection after this answer

  void set(std::string name, std::string value) { headers.emplace_back(std::move(name), std::move(value)); }
};

/// One request and its answer. Owned by the handler, which must answer (a dropped exchange answers 500). Every member
/// is called on the server's loop.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual Request& request() = 0;
  /// Headers that any kind of answer will carry.
  virtual void add_header(std::string name, std::string value) = 0;
  virtual void respond(Response response) = 0;
  /// Starts an answer of unknown length; `head.body` is not used.
  virtual void start_stream(Response head) = 0;
  /// Appends to the stream. Never blocks: bytes that the client does not read yet are kept, and a client that lets too
  /// many of them pile up, or takes none for too long, counts as gone.
  virtual void write(std::string_view bytes) = 0;
  /// Ends the stream.
  virtual void finish() = 0;
  /// `callback` is called once if the client goes away before the answer is complete.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
};

/// The standard phrase of a status, e.g. "Not Found".
std::string_view reason_phrase(int status);
std::string percent_decode(std::string_view text, bool plus_is_space);

}  // namespace gristmill::server
