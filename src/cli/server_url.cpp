#include "cli/server_url.h"

#include "base/error.h"

namespace gristmill::cli {

ServerUrl parse_server_url(std::string_view url) {
  const auto refuse = [&](const char* what) -> Error { return Error(cat("--url ", url, ": ", what)); };
  std::string_view rest = url;
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (rest.substr(0, scheme) != "http") throw refuse("only http:// is supported");
    rest.remove_prefix(scheme + 3);
  }
  ServerUrl parts;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    parts.prefix = rest.substr(slash);
    rest = rest.substr(0, slash);
  }
  if (parts.prefix.find_first_of("?# \r\n") != std::string::npos)
    throw refuse("a plain path is expected behind the host");
  while (parts.prefix.ends_with('/')) parts.prefix.pop_back();
  if (parts.prefix.ends_with("/v1")) parts.prefix.erase(parts.prefix.size() - 3);
  std::string_view port;
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) throw refuse("the bracket of the address is not closed");
    parts.host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    if (!rest.empty() && rest[0] != ':') throw refuse("a colon and a port are expected behind the address");
    port = rest.empty() ? rest : rest.substr(1);
  } else {
    const size_t colon = rest.find(':');
    parts.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) port = rest.substr(colon + 1);
  }
  if (parts.host.empty() || parts.host.find_first_of("@ \r\n") != std::string::npos)
    throw refuse("the host is missing or wrong");
  if (port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos)
    throw refuse("the port is not a number");
  parts.port = port.empty() ? "80" : std::string(port);
  return parts;
}

}  // namespace gristmill::cli
