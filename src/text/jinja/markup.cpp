#include "text/jinja/markup.h"

#include "text/jinja/python_text.h"

namespace gristmill::jinja {

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
        break;
    }
  }
  return out;
}

Value escaped(const Value& value, Budget& budget) {
  if (value.is_markup()) return value;
  std::string text;
  append_text(text, value, budget.text_room());
  budget.text(text.size());
  text = escape_html(text);
  budget.text(text.size());
  return Value::markup(std::move(text));
}

Value marked_like(const Value& like, std::string text) {
  return like.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
}

}  // namespace gristmill::jinja
