#pragma once
#include <string>
#include <string_view>

namespace gristmill::cli {

/// The parts of "http://host:port/prefix".
struct ServerUrl {
  std::string host;    ///< without the brackets of an IPv6 address
  std::string port;    ///< "80" when not given
  std::string prefix;  ///< path before /v1, without a slash at the end
};

/// Throws Error for anything but plain HTTP URLs. A missing scheme means http, and a path that ends in /v1 loses it.
ServerUrl parse_server_url(std::string_view url);

}  // namespace gristmill::cli
