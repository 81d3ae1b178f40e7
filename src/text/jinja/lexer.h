#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/error.h"
#include "text/jinja/value.h"

namespace gristmill::jinja {

enum class TokenKind : uint8_t {
  text,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  Position at;
  std::string text;  ///< text, name, the value of a string literal, or how the operator is written
  Value number;      ///< of an integer or real

  bool is_name(std::string_view word) const { return kind == TokenKind::name && text == word; }
  bool is_op(std::string_view sign) const { return kind == TokenKind::op && text == sign; }
};

/// Cuts a template into tokens, ending with one `end`. Whitespace control follows jinja2 with trim_blocks and
/// lstrip_blocks on and keep_trailing_newline off. Throws TemplateError (syntax).
std::vector<Token> tokenize(std::string_view source);

/// How a token is named in messages.
std::string describe(const Token& token);

}  // namespace gristmill::jinja
