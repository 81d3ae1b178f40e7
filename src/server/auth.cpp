#include "server/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

namespace gristmill::server {
namespace {

bool is_open(const std::string& path, bool v1_only) {
  if (v1_only) return !path.starts_with("/v1");
  return path == "/health" || path == "/ping" || path == "/metrics" || path == "/version";
}

bool equal_ignoring_case(std::string_view a, std::string_view lower) {
  if (a.size() != lower.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const char c = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] - 'A' + 'a') : a[i];
    if (c != lower[i]) return false;
  }
  return true;
}

/// The token of "Bearer TOKEN"; empty for any other scheme (RFC 9110 section 11.4: schemes know no case).
std::string_view bearer_token(std::string_view value) {
  const size_t space = value.find(' ');
  if (space == std::string_view::npos || !equal_ignoring_case(value.substr(0, space), "bearer")) return {};
  value.remove_prefix(space);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  while (!value.empty() && value.back() == ' ') value.remove_suffix(1);
  return value;
}

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

}  // namespace

Auth::Auth(const std::vector<std::string>& keys, bool guard_v1_only) : v1_only_(guard_v1_only) {
  for (const std::string& key : keys) digests_.push_back(sha256(key));
}

/// Digests are compared in constant time, all of them, so that time tells nothing about any key.
bool Auth::knows(std::string_view key) const {
  if (key.empty()) return false;
  const Digest sent = sha256(key);
  bool found = false;
  for (const Digest& digest : digests_) found |= CRYPTO_memcmp(sent.data(), digest.data(), digest.size()) == 0;
  return found;
}

std::optional<Response> Auth::refuse(const Request& request, const std::string& path) const {
  if (!enabled() || request.method == "OPTIONS" || is_open(path, v1_only_)) return {};
  if (request.count("authorization") == 1 && knows(bearer_token(request.header("authorization")))) return {};
  Response response;
  response.status = 401;
  response.body = R"({"error":"Unauthorized"})";
  response.set("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace gristmill::server
