#include "server/cors.h"

#include <algorithm>

namespace gristmill::server {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

std::string join(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& each : list) out += (out.empty() ? "" : ", ") + each;
  return out;
}

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (!item.empty()) out.push_back(lower(item));
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return out;
}

}  // namespace

Cors::Cors(const config::HttpConfig& config)
    : any_origin_(contains(config.allowed_origins, "*")),
      any_header_(contains(config.allowed_headers, "*")),
      origins_(config.allowed_origins),
      credentials_(config.allow_credentials) {
  method_list_ = contains(config.allowed_methods, "*")
                     ? std::vector<std::string>{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
                     : config.allowed_methods;
  methods_ = join(method_list_);
  headers_ = join(config.allowed_headers);
  for (const std::string& header : config.allowed_headers) header_list_.push_back(lower(header));
}

bool Cors::allows(std::string_view origin) const {
  return any_origin_ || contains(origins_, origin);
}

std::vector<std::pair<std::string, std::string>> Cors::headers(const Request& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !allows(origin)) return {};
  std::vector<std::pair<std::string, std::string>> out;
  // With credentials a browser does not accept "*".
  if (any_origin_ && !credentials_) {
    out.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    out.emplace_back("Access-Control-Allow-Origin", origin);
    out.emplace_back("Vary", "Origin");
  }
  if (credentials_) out.emplace_back("Access-Control-Allow-Credentials", "true");
  return out;
}

std::optional<Response> Cors::preflight(const Request& request) const {
  const std::string_view method = request.header("access-control-request-method");
  if (request.method != "OPTIONS" || request.header("origin").empty() || method.empty()) return {};
  Response response;
  response.content_type = "text/plain; charset=utf-8";
  std::string refused;
  if (!allows(request.header("origin"))) refused += refused.empty() ? "origin" : ", origin";
  if (!contains(method_list_, method)) refused += refused.empty() ? "method" : ", method";
  const std::string_view wanted = request.header("access-control-request-headers");
  if (!any_header_) {
    // These need no permission (Fetch standard, CORS-safelisted request headers).
    static const std::vector<std::string> simple = {"accept", "accept-language", "content-language", "content-type"};
    for (const std::string& header : split_list(wanted)) {
      if (contains(simple, header) || contains(header_list_, header)) continue;
      refused += refused.empty() ? "headers" : ", headers";
      break;
    }
  }
  response.headers = headers(request);
  response.set("Access-Control-Allow-Methods", methods_);
  if (any_header_ ? !wanted.empty() : true) {
    response.set("Access-Control-Allow-Headers", any_header_ ? std::string(wanted) : headers_);
  }
  response.set("Access-Control-Max-Age", "600");
  response.status = refused.empty() ? 200 : 400;
  response.body = refused.empty() ? "OK" : "Disallowed CORS " + refused;
  return response;
}

}  // namespace gristmill::server
