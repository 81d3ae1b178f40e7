#include "server/openai/logprobs.h"

#include <algorithm>

namespace gristmill::server::openai {
namespace {

bool is_text(std::string_view bytes) {
  // Valid UTF-8 passes the JSON writer unchanged.
  std::string written;
  append_json_string(written, bytes);
  return bytes.find("\xEF\xBF\xBD") != std::string_view::npos || written.find("\xEF\xBF\xBD") == std::string::npos;
}

void append_comma(std::string& list) {
  if (!list.empty()) list += ',';
}

/// The token as chats show it: its bytes, decoded with replacement; alone, never joined with its neighbours.
void append_chat_token(std::string& out, int32_t token, float logprob, const LogprobStyle& style) {
  const std::string_view bytes = style.tokenizer->token_bytes(token, false);
  out += "\"token\":";
  if (style.tokens_as_ids) {
    out += "\"token_id:" + std::to_string(token) + '"';
  } else {
    append_json_string(out, bytes);
  }
  out += ",\"logprob\":";
  append_json_number(out, logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

/// As completions show it: half characters as "bytes:\xe2\x80", so that no two of them look alike.
void append_completion_token(std::string& out, int32_t token, const LogprobStyle& style) {
  if (style.tokens_as_ids) {
    out += "\"token_id:" + std::to_string(token) + '"';
    return;
  }
  const std::string_view bytes = style.tokenizer->token_bytes(token, false);
  if (is_text(bytes)) {
    append_json_string(out, bytes);
    return;
  }
  static const char* const digits = "0123456789abcdef";
  out += "\"bytes:";
  for (const char c : bytes) {
    out += "\\\\x";
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  out += '"';
}

size_t alternatives(const engine::OutputToken& token, size_t top) {
  return std::min(top, token.top.size());
}

}  // namespace

void ChatLogprobs::add(const engine::OutputToken& token, size_t top) {
  append_comma(entries_);
  entries_ += '{';
  append_chat_token(entries_, token.token, token.sampled.logprob, style_);
  entries_ += ",\"top_logprobs\":[";
  for (size_t i = 0; i < alternatives(token, top); ++i) {
    entries_ += i > 0 ? ",{" : "{";
    append_chat_token(entries_, token.top[i].token, token.top[i].logprob, style_);
    entries_ += '}';
  }
  entries_ += "]}";
}

void ChatLogprobs::take(JsonWriter& json) {
  if (entries_.empty()) {
    json.null();
    return;
  }
  json.begin_object().key("content").begin_array().raw(entries_).end_array().end_object();
  entries_.clear();
}

void CompletionLogprobs::add_token(int32_t token) {
  append_comma(offsets_);
  offsets_ += std::to_string(offset_);
  append_comma(tokens_);
  append_completion_token(tokens_, token, style_);
  offset_ += count_characters(style_.tokenizer->token_bytes(token, style_.skip_special));
  append_comma(values_);
  append_comma(tops_);
}

void CompletionLogprobs::add_first(int32_t token) {
  add_token(token);
  values_ += "null";
  tops_ += "null";
}

void CompletionLogprobs::add(const engine::OutputToken& token, size_t top) {
  add_token(token.token);
  append_json_number(values_, token.sampled.logprob);
  // The sampled token first, then the alternatives; equal texts collapse into one key.
  std::vector<std::string> keys;
  tops_ += '{';
  const auto add_entry = [&](int32_t id, float logprob) {
    std::string key;
    append_completion_token(key, id, style_);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) return;
    if (!keys.empty()) tops_ += ',';
    tops_ += key;
    tops_ += ':';
    append_json_number(tops_, logprob);
    keys.push_back(std::move(key));
  };
  add_entry(token.token, token.sampled.logprob);
  for (size_t i = 0; i < alternatives(token, top); ++i) add_entry(token.top[i].token, token.top[i].logprob);
  tops_ += '}';
}

void CompletionLogprobs::take(JsonWriter& json) {
  if (offsets_.empty()) {
    json.null();
    return;
  }
  json.begin_object();
  json.key("text_offset").begin_array().raw(offsets_).end_array();
  json.key("token_logprobs").begin_array().raw(values_).end_array();
  json.key("tokens").begin_array().raw(tokens_).end_array();
  json.key("top_logprobs").begin_array().raw(tops_).end_array();
  json.end_object();
  for (std::string* list : {&offsets_, &values_, &tokens_, &tops_}) list->clear();
}

void write_prompt_logprobs(JsonWriter& json, const std::vector<engine::OutputToken>& prompt, size_t top,
                           const text::Tokenizer& tokenizer) {
  json.begin_array();
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (i == 0) {
      json.null();
      continue;
    }
    json.begin_object();
    const auto entry = [&](const TokenLogprob& of) {
      json.key(std::to_string(of.token)).begin_object();
      json.key("logprob").number(of.logprob);
      json.key("rank").integer(of.rank);
      json.key("decoded_token").string(tokenizer.token_bytes(of.token, false));
      json.end_object();
    };
    entry(prompt[i].sampled);
    for (size_t k = 0; k < alternatives(prompt[i], top); ++k) {
      if (prompt[i].top[k].token != prompt[i].sampled.token) entry(prompt[i].top[k]);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace gristmill::server::openai
