#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "server/http/message.h"

namespace gristmill::server {

/// --api-key: bearer tokens. Every path is guarded except /health, /ping, /metrics and /version (and, on request, as in
/// vLLM, all that do not begin with /v1).
class Auth {
 public:
  Auth(const std::vector<std::string>& keys, bool guard_v1_only);
  bool enabled() const { return !digests_.empty(); }
  /// The answer to a request without a right key. `path` is without the root path.
  std::optional<Response> refuse(const Request& request, const std::string& path) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  bool knows(std::string_view key) const;

  std::vector<Digest> digests_;
  bool v1_only_;
};

}  // namespace gristmill::server
