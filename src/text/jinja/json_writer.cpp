#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/error.h"
#include "text/jinja/json.h"
#include "text/jinja/limits.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style)
      : style_(style), separator_(style.item_separator.value_or(style.indent ? "," : ", ")) {}

  std::string take() { return std::move(out_); }

  void value(const Value& value) {
    switch (value.kind()) {
      case Kind::string:
        string(value.string());
        break;
      case Kind::list:
      case Kind::tuple:
        list(value.list());
        break;
      case Kind::dict:
        dict(value.dict());
        break;
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        out_ += scalar(value);
        break;
      default:
        fail("Object of type ", value.type_name(), " is not JSON serializable");
    }
    check();
  }

 private:
  void check() const {
    if (out_.size() > style_.room) throw TemplateError(Fault::limit, "the JSON text is longer than the limit");
  }

  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::none:
        return "null";
      case Kind::boolean:
        return value.boolean() ? "true" : "false";
      case Kind::integer:
        return std::to_string(value.integer());
      default:
        break;
    }
    const std::string text = float_text(value.real());
    return text == "nan" ? "NaN" : text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
  }

  void hex_escape(char32_t unit) {
    static constexpr char hex[] = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += hex[(unit >> shift) & 15];
  }

  void escape(char32_t c) {
    switch (c) {
      case '"':
        out_ += "\\\"";
        return;
      case '\\':
        out_ += "\\\\";
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\f':
        out_ += "\\f";
        return;
      case '\b':
        out_ += "\\b";
        return;
      default:
        break;
    }
    if (c < 0x20 || (style_.ensure_ascii && c >= 0x7f && c < 0x10000)) {
      hex_escape(c);
    } else if (style_.ensure_ascii && c >= 0x10000 && c < unicode::stray_byte) {
      hex_escape(0xd800 + ((c - 0x10000) >> 10));
      hex_escape(0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      unicode::append(out_, c);
    }
  }

  void string(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      // Runs without anything to escape are copied whole.
      const size_t start = at;
      while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x20 && text[at] != '"' && text[at] != '\\' &&
             !(style_.ensure_ascii && static_cast<unsigned char>(text[at]) >= 0x7f)) {
        ++at;
      }
      out_ += text.substr(start, at - start);
      check();
      if (at < text.size()) escape(unicode::decode(text, at));
    }
    out_ += '"';
  }

  void newline() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) {
      out_ += *style_.indent;
      check();
    }
  }

  /// Writes the items of a list or dict between brackets.
  template <class Items, class WriteItem>
  void items(char open, char close, const Items& items, const WriteItem& write_item) {
    out_ += open;
    if (items.begin() != items.end()) {
      ++level_;
      bool first = true;
      for (const auto& item : items) {
        if (!first) out_ += separator_;
        first = false;
        newline();
        write_item(item);
        check();
      }
      --level_;
      newline();
    }
    out_ += close;
  }

  void list(const List& list) {
    items('[', ']', list, [&](const Value& item) { value(item); });
  }

  void entry(const Dict::Entry& entry) {
    switch (entry.key.kind()) {
      case Kind::string:
        string(entry.key.string());
        break;
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        string(scalar(entry.key));
        break;
      default:
        fail("keys must be str, int, float, bool or None, not ", entry.key.type_name());
    }
    out_ += style_.key_separator;
    value(entry.value);
  }

  void dict(const Dict& dict) {
    if (!style_.sort_keys) return items('{', '}', dict, [&](const Dict::Entry& item) { entry(item); });
    std::vector<const Dict::Entry*> sorted;
    for (const auto& item : dict) sorted.push_back(&item);
    const Limits limits;
    std::stable_sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) {
      Budget budget(limits);  // keys are scalars here, or refused just after
      return order(a->key, b->key, "<", budget) < 0;
    });
    items('{', '}', sorted, [&](const Dict::Entry* item) { entry(*item); });
  }

  const JsonStyle& style_;
  const std::string separator_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.value(value);
  return writer.take();
}

}  // namespace gristmill::jinja
