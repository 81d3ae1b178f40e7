#include "server/http/answer_head.h"

#include <ctime>

namespace gristmill::server {
namespace {

/// IMF-fixdate (RFC 9110 section 5.6.7), made once a second.
const std::string& http_date() {
  thread_local std::time_t made = -1;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != made) {
    static const char* const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char* const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm utc{};
    gmtime_r(&now, &utc);
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[utc.tm_wday], utc.tm_mday,
                  months[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
    text = buffer;
    made = now;
  }
  return text;
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) out += c;
  }
  out += "\r\n";
}

}  // namespace

void append_head(std::string& out, const Response& response, int version, bool keep_alive, BodyFraming framing) {
  out += "HTTP/1.1 ";
  out += std::to_string(response.status);
  out += ' ';
  out += reason_phrase(response.status);
  out += "\r\n";
  append_header(out, "Date", http_date());
  append_header(out, "Server", "gristmill");
  if (!response.content_type.empty() && response.status != 204)
    append_header(out, "Content-Type", response.content_type);
  if (framing == BodyFraming::chunked) {
    append_header(out, "Transfer-Encoding", "chunked");
  } else if (framing == BodyFraming::length && response.status != 204) {
    append_header(out, "Content-Length", std::to_string(response.body.size()));
  }
  if (!keep_alive) {
    append_header(out, "Connection", "close");
  } else if (version == 10) {
    append_header(out, "Connection", "keep-alive");
  }
  for (const auto& [name, value] : response.headers) append_header(out, name, value);
  out += "\r\n";
}

}  // namespace gristmill::server
