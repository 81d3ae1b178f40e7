#include "cli/server_url.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace gristmill::cli {
namespace {

std::string parts(std::string_view url) {
  const ServerUrl parsed = parse_server_url(url);
  return parsed.host + " " + parsed.port + " " + parsed.prefix;
}

TEST(ServerUrl, IsTakenApart) {
  EXPECT_EQ(parts("http://127.0.0.1:8000"), "127.0.0.1 8000 ");
  EXPECT_EQ(parts("http://mill.example/"), "mill.example 80 ");
  EXPECT_EQ(parts("mill:81/v1"), "mill 81 ");
  EXPECT_EQ(parts("http://mill/llm/v1/"), "mill 80 /llm");
  EXPECT_EQ(parts("http://[::1]:8000/llm"), "::1 8000 /llm");
  EXPECT_EQ(parts("http://[::1]"), "::1 80 ");
}

TEST(ServerUrl, OtherUrlsAreRefusedByName) {
  for (const char* url :
       {"https://mill", "ftp://mill", "http://", "http://:80", "http://mill:port", "http://mill:123456", "http://[::1",
        "http://[::1]8000", "http://user@mill", "http://mill/a b", "http://mill/?q"}) {
    try {
      parse_server_url(url);
      FAIL() << url;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(url), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace gristmill::cli
