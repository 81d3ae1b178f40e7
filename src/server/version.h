#pragma once

namespace gristmill::server {

inline constexpr const char* program_version = "0.1.0";
/// The vLLM whose API this server speaks; clients look at it.
inline constexpr const char* api_version = "0.18.0";

}  // namespace gristmill::server
