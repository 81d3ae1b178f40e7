#include <gtest/gtest.h>

#include "server/auth.h"
#include "server/cors.h"

namespace gristmill::server {
namespace {

Request request(const std::string& method, std::vector<std::pair<std::string, std::string>> headers) {
  Request out;
  out.method = method;
  out.headers = std::move(headers);
  return out;
}

TEST(Auth, AcceptsEveryKeyAndAnySpellingOfTheScheme) {
  const Auth auth({"k1", "k2"}, false);
  for (const char* value : {"Bearer k1", "bearer k2", "BEARER  k1", "Bearer k1 "}) {
    EXPECT_FALSE(auth.refuse(request("GET", {{"authorization", value}}), "/v1/models")) << value;
  }
}

TEST(Auth, RefusesEverythingElse) {
  const Auth auth({"k1", "k2"}, false);
  for (const std::string& value :
       {std::string("k1"), std::string("Basic k1"), std::string("Bearer"), std::string("Bearer k"),
        std::string("Bearer k11"), std::string("Bearer \xff"), "Bearer " + std::string(1 << 20, 'k')}) {
    const auto refusal = auth.refuse(request("GET", {{"authorization", value}}), "/v1/models");
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->status, 401);
    EXPECT_EQ(refusal->body, R"({"error":"Unauthorized"})");
  }
  EXPECT_TRUE(auth.refuse(request("GET", {}), "/tokenize"));
  EXPECT_TRUE(
      auth.refuse(request("GET", {{"authorization", "Bearer k1"}, {"authorization", "Bearer k1"}}), "/v1/models"));
}

TEST(Auth, LeavesProbesAndPreflightOpen) {
  const Auth auth({"k"}, false);
  for (const char* path : {"/health", "/ping", "/metrics", "/version"})
    EXPECT_FALSE(auth.refuse(request("GET", {}), path));
  EXPECT_FALSE(auth.refuse(request("OPTIONS", {}), "/v1/models"));
  const Auth as_vllm({"k"}, true);
  EXPECT_FALSE(as_vllm.refuse(request("POST", {}), "/tokenize"));
  EXPECT_TRUE(as_vllm.refuse(request("POST", {}), "/v1/completions"));
  EXPECT_FALSE(Auth({}, false).refuse(request("POST", {}), "/v1/completions"));
}

std::string value_of(const std::vector<std::pair<std::string, std::string>>& headers, const std::string& name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "-";
}

TEST(Cors, AllowsEveryOriginByDefault) {
  const Cors cors({});
  EXPECT_TRUE(cors.headers(request("GET", {})).empty());
  EXPECT_EQ(value_of(cors.headers(request("GET", {{"origin", "https://a"}})), "Access-Control-Allow-Origin"), "*");
  const auto preflight = cors.preflight(request(
      "OPTIONS",
      {{"origin", "https://a"}, {"access-control-request-method", "POST"}, {"access-control-request-headers", "x-y"}}));
  ASSERT_TRUE(preflight);
  EXPECT_EQ(preflight->status, 200);
  EXPECT_EQ(value_of(preflight->headers, "Access-Control-Allow-Headers"), "x-y");
  EXPECT_FALSE(cors.preflight(request("OPTIONS", {})));
}

TEST(Cors, NamesTheOriginWhenOnlySomeAreAllowed) {
  config::HttpConfig config;
  config.allowed_origins = {"https://a"};
  config.allowed_methods = {"GET"};
  config.allowed_headers = {"X-Mine"};
  config.allow_credentials = true;
  const Cors cors(config);
  EXPECT_TRUE(cors.headers(request("GET", {{"origin", "https://b"}})).empty());
  const auto headers = cors.headers(request("GET", {{"origin", "https://a"}}));
  EXPECT_EQ(value_of(headers, "Access-Control-Allow-Origin"), "https://a");
  EXPECT_EQ(value_of(headers, "Access-Control-Allow-Credentials"), "true");
  EXPECT_EQ(value_of(headers, "Vary"), "Origin");
  const auto ask = [&](const char* origin, const char* method, const char* wanted) {
    return cors
        .preflight(request("OPTIONS", {{"origin", origin},
                                       {"access-control-request-method", method},
                                       {"access-control-request-headers", wanted}}))
        ->status;
  };
  EXPECT_EQ(ask("https://a", "GET", "x-mine, content-type"), 200);
  EXPECT_EQ(ask("https://b", "GET", ""), 400);
  EXPECT_EQ(ask("https://a", "POST", ""), 400);
  EXPECT_EQ(ask("https://a", "GET", "x-other"), 400);
}

}  // namespace
}  // namespace gristmill::server
