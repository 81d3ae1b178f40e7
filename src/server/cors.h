#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/serve_config.h"
#include "server/http/message.h"

namespace gristmill::server {

/// Cross-origin rules (the Fetch standard's CORS protocol): which pages of which sites may call this server.
class Cors {
 public:
  explicit Cors(const config::HttpConfig& config);
  /// The answer to a preflight request; nothing for any other request.
  std::optional<Response> preflight(const Request& request) const;
  /// Headers for the answer to any other request; none when it names no origin or one that is not allowed.
  std::vector<std::pair<std::string, std::string>> headers(const Request& request) const;

 private:
  bool allows(std::string_view origin) const;

  bool any_origin_, any_header_;
  std::vector<std::string> origins_;
  std::string methods_, headers_;
  std::vector<std::string> method_list_, header_list_;
  bool credentials_;
};

}  // namespace gristmill::server
