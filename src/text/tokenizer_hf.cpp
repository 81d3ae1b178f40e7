#include "text/tokenizer_hf.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "weights/mapped_file.h"

namespace gristmill::text {
namespace {

namespace json = boost::json;

json::value parse(std::string_view text, const char* name, const json::storage_ptr& memory) {
  json::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error, memory);
  if (error) throw Error(cat(name, ": not valid JSON: ", error.message()));
  if (!value.is_object()) throw Error(cat(name, ": not a JSON object"));
  return value;
}

std::string_view view(const json::string& string) {
  return {string.data(), string.size()};
}

// One object of tokenizer.json with its place in the file, for messages.
class Entry {
 public:
  Entry(const json::value& value, std::string where) : where_(std::move(where)) {
    if (!value.is_object()) throw Error(cat("tokenizer.json: ", where_, ": not an object"));
    object_ = &value.get_object();
  }
  const std::string& where() const { return where_; }
  std::string path(std::string_view key) const { return where_.empty() ? std::string(key) : cat(where_, '.', key); }
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const {
    throw Error(cat("tokenizer.json: ", path(key), ": ", what));
  }
  /// Null when absent or JSON null.
  const json::value* find(std::string_view key) const {
    const json::value* value = object_->if_contains(json::string_view(key.data(), key.size()));
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  const json::value& at(std::string_view key) const {
    if (const json::value* value = find(key)) return *value;
    refuse(key, "missing");
  }
  Entry entry(std::string_view key) const { return Entry(at(key), path(key)); }
  std::string_view string(std::string_view key) const {
    const json::value& value = at(key);
    if (!value.is_string()) refuse(key, "not a string");
    return view(value.get_string());
  }
  std::string_view string(std::string_view key, std::string_view otherwise) const {
    return find(key) == nullptr ? otherwise : string(key);
  }
  bool boolean(std::string_view key, bool otherwise) const {
    const json::value* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) refuse(key, "not true or false");
    return value->get_bool();
  }
  std::vector<Entry> entries(std::string_view key) const {
    const json::value& value = at(key);
    if (!value.is_array()) refuse(key, "not an array");
    std::vector<Entry> list;
    for (const json::value& item : value.get_array()) list.emplace_back(item, cat(path(key), '[', list.size(), ']'));
    return list;
  }
  std::string_view type() const { return string("type"); }

 private:
  const json::object* object_ = nullptr;
  std::string where_;
};

// A token id as JSON has it: a number from 0 to below 2^30. `where` gives its place in the file, for the message.
template <class Where>
int32_t token_id(const json::value& value, const Where& where) {
  json::error_code error;
  const int64_t id = value.is_number() ? value.to_number<int64_t>(error) : -1;
  if (error || id < 0 || id >= int64_t{1} << 30)
    throw Error(cat("tokenizer.json: ", where(), ": ", weights::quoted(json::serialize(value)), " is not a token id"));
  return static_cast<int32_t>(id);
}

// `pattern` is {"String": text} or {"Regex": pattern}.
std::string literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void read_normalizer(const Entry& entry, Normalizer& normalizer) {
  const std::string_view type = entry.type();
  if (type == "Sequence") {
    for (const Entry& step : entry.entries("normalizers")) read_normalizer(step, normalizer);
  } else if (type == "NFC") {
    normalizer.add_nfc();
  } else if (type == "Replace") {
    const std::string_view from = entry.entry("pattern").string("String");
    if (from.empty()) entry.refuse("pattern.String", "empty");
    normalizer.add_replace(std::string(from), std::string(entry.string("content")));
  } else if (type == "Prepend") {
    normalizer.add_prepend(std::string(entry.string("prepend")));
  } else {
    entry.refuse("type", cat("normalizer \"", type, "\" is not supported; NFC, Replace, Prepend, Sequence are"));
  }
}

struct Pretokenization {
  std::vector<SplitStep> steps;
  Metaspace metaspace = Metaspace::none;
  bool byte_level = false;
  bool add_prefix_space = false;
};

SplitBehavior behavior_of(const Entry& entry) {
  const std::string_view name = entry.string("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  entry.refuse("behavior", cat("unknown behavior \"", name, "\""));
}

/// The older form has add_prefix_space instead of prepend_scheme.
Metaspace read_metaspace(const Entry& entry) {
  if (entry.string("replacement", sentencepiece_space) != sentencepiece_space)
    entry.refuse("replacement", "only U+2581 is supported");
  const std::string_view scheme =
      entry.string("prepend_scheme", entry.boolean("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return Metaspace::always;
  if (scheme == "first") return Metaspace::first;
  if (scheme == "never") return Metaspace::never;
  entry.refuse("prepend_scheme", cat(weights::quoted(scheme), " is not supported; always, first, never are"));
}

void read_pretokenizer(const Entry& entry, Pretokenization& out) {
  const std::string_view type = entry.type();
  if (type == "Sequence") {
    for (const Entry& step : entry.entries("pretokenizers")) read_pretokenizer(step, out);
    return;
  }
  if (out.byte_level) entry.refuse("type", cat("\"", type, "\" behind ByteLevel is not supported"));
  if (type == "Metaspace") {
    if (!out.steps.empty() || out.metaspace != Metaspace::none)
      entry.refuse("type", "Metaspace is supported only as the first step");
    out.metaspace = read_metaspace(entry);
    if (entry.boolean("split", true))
      out.steps.push_back({Regex(R"(\x{2581})"), SplitBehavior::merged_with_next, false});
    return;
  }
  if (type == "ByteLevel" && out.metaspace != Metaspace::none)
    entry.refuse("type", "\"ByteLevel\" behind Metaspace is not supported");
  if (type == "Split") {
    const Entry pattern = entry.entry("pattern");
    const bool regex = pattern.find("Regex") != nullptr;
    const std::string source = regex ? std::string(pattern.string("Regex")) : literal(pattern.string("String"));
    out.steps.push_back({Regex(source), behavior_of(entry), entry.boolean("invert", false)});
  } else if (type == "Digits") {
    const bool single = entry.boolean("individual_digits", false);
    out.steps.push_back({Regex(single ? R"(\p{N})" : R"(\p{N}+)"), SplitBehavior::isolated, false});
  } else if (type == "ByteLevel") {
    out.byte_level = true;
    out.add_prefix_space = entry.boolean("add_prefix_space", true);
    if (out.add_prefix_space && !out.steps.empty()) {
      entry.refuse("add_prefix_space", "is supported only where ByteLevel is the first step");
    }
    if (entry.boolean("use_regex", true)) out.steps.push_back({Regex(gpt2_pattern), SplitBehavior::isolated, false});
  } else {
    entry.refuse("type", cat("pre-tokenizer \"", type,
                             "\" is not supported; Split, Digits, ByteLevel, Metaspace, Sequence are"));
  }
}

// Which spelling the decoder undoes, and whether it takes a leading space away.
struct Decoding {
  bool byte_level = false, sentencepiece = false, strip = false;
};

void read_decoder(const Entry& entry, Decoding& out) {
  const std::string_view type = entry.type();
  if (type == "Sequence") {
    for (const Entry& step : entry.entries("decoders")) read_decoder(step, out);
  } else if (type == "ByteLevel") {
    out.byte_level = true;
  } else if (type == "Replace") {
    if (entry.entry("pattern").string("String") != sentencepiece_space || entry.string("content") != " ") {
      entry.refuse("pattern", "only U+2581 to a space is supported");
    }
    out.sentencepiece = true;
  } else if (type == "Metaspace") {
    out.sentencepiece = true;
    out.strip = read_metaspace(entry) != Metaspace::never;
  } else if (type == "Strip") {
    out.strip = true;
  } else if (type != "ByteFallback" && type != "Fuse") {
    entry.refuse("type", cat("decoder \"", type,
                             "\" is not supported; ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip are"));
  }
}

// The special tokens that the post-processor puts around a single text.
void read_post_processor(const Entry& entry, TokenizerParts& parts) {
  const std::string_view type = entry.type();
  if (type == "Sequence") {
    for (const Entry& step : entry.entries("processors")) read_post_processor(step, parts);
  } else if (type == "TemplateProcessing") {
    bool behind = false;
    for (const Entry& piece : entry.entries("single")) {
      if (piece.find("Sequence") != nullptr) {
        behind = true;
        continue;
      }
      const std::string name(piece.entry("SpecialToken").string("id"));
      const Entry token = entry.entry("special_tokens").entry(name);
      if (!token.at("ids").is_array()) token.refuse("ids", "not an array");
      for (const json::value& id : token.at("ids").get_array()) {
        (behind ? parts.suffix : parts.prefix).push_back(token_id(id, [&] { return token.path("ids"); }));
      }
    }
  } else if (type != "ByteLevel") {
    entry.refuse("type",
                 cat("post-processor \"", type, "\" is not supported; TemplateProcessing, ByteLevel, Sequence are"));
  }
}

// The text of a token name in tokenizer_config.json: a string or an AddedToken object.
std::string_view token_name(const json::value& config, const char* key) {
  const json::value* value = config.get_object().if_contains(key);
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  return value != nullptr && value->is_string() ? view(value->get_string()) : std::string_view();
}

// Token texts of model and added tokens, by id, copied end to end into one string.
struct Texts {
  std::shared_ptr<std::string> storage = std::make_shared<std::string>();
  std::vector<std::string_view> views;
  std::vector<TokenKind> kinds;
  std::vector<bool> in_model;
};

Texts read_texts(const json::object& vocabulary, const std::vector<Entry>& added, std::vector<AddedToken>& raw,
                 std::vector<AddedToken>& normalized) {
  struct Source {
    int32_t id;
    std::string_view text;
    TokenKind kind;
    bool in_model;
  };
  std::vector<Source> sources;
  size_t bytes = 0, size = 0;
  const size_t limit = 4 * (vocabulary.size() + added.size()) + 1024;  // ids may have gaps, but not be mostly gaps
  const auto add = [&](Source source, const auto& where) {
    if (static_cast<size_t>(source.id) >= limit)
      throw Error(cat("tokenizer.json: ", where(), ": token id ", source.id, " is out of range for ",
                      vocabulary.size() + added.size(), " tokens"));
    bytes += source.text.size();
    size = std::max(size, static_cast<size_t>(source.id) + 1);
    sources.push_back(source);
  };
  for (const auto& [text, id] : vocabulary) {
    const auto where = [&] { return cat("model.vocab: token ", weights::quoted({text.data(), text.size()})); };
    add({token_id(id, where), {text.data(), text.size()}, TokenKind::normal, true}, where);
  }
  for (const Entry& entry : added) {
    AddedToken token;
    token.text = entry.string("content");
    token.id = token_id(entry.at("id"), [&] { return entry.path("id"); });
    token.special = entry.boolean("special", false);
    token.single_word = entry.boolean("single_word", false);
    token.lstrip = entry.boolean("lstrip", false);
    token.rstrip = entry.boolean("rstrip", false);
    add({token.id, entry.string("content"), token.special ? TokenKind::control : TokenKind::user_defined, false},
        [&] { return entry.where(); });
    (entry.boolean("normalized", !token.special) ? normalized : raw).push_back(std::move(token));
  }
  Texts texts;
  texts.storage->reserve(bytes);
  texts.views.resize(size);
  texts.kinds.resize(size, TokenKind::unused);
  texts.in_model.resize(size);
  for (const Source& source : sources) {  // added tokens come last: they decide the kind
    const size_t id = static_cast<size_t>(source.id), at = texts.storage->size();
    if (texts.kinds[id] != TokenKind::unused && texts.views[id] != source.text) {
      throw Error(cat("tokenizer.json: ", source.in_model ? "model.vocab" : "added_tokens", ": tokens ",
                      weights::quoted(texts.views[id]), " and ", weights::quoted(source.text), " both have id ", id));
    }
    texts.storage->append(source.text);
    texts.views[id] = std::string_view(*texts.storage).substr(at);
    texts.kinds[id] = source.kind;
    if (source.in_model) texts.in_model[id] = true;
  }
  return texts;
}

MergeTable read_merges(const Entry& model, const TokenIndex& index) {
  const json::value& list = model.at("merges");
  if (!list.is_array()) model.refuse("merges", "not an array");
  MergeTable merges(list.get_array().size());
  std::string joint;
  size_t number = 0;
  for (const json::value& item : list.get_array()) {
    std::string_view left, right;
    if (item.is_string()) {
      const std::string_view both = view(item.get_string());
      const size_t space = both.find(' ');
      if (space != std::string_view::npos) {
        left = both.substr(0, space);
        right = both.substr(space + 1);
      }
    } else if (item.is_array() && item.get_array().size() == 2 && item.get_array()[0].is_string() &&
               item.get_array()[1].is_string()) {
      left = view(item.get_array()[0].get_string());
      right = view(item.get_array()[1].get_string());
    }
    if (!add_merge(merges, index, left, right, joint)) {
      model.refuse(cat("merges[", number, ']'), "does not join two tokens of the vocabulary to a third");
    }
    ++number;
  }
  return merges;
}

}  // namespace

std::unique_ptr<Tokenizer> make_hf_tokenizer(std::string_view tokenizer_json, std::string_view config_json) {
  json::monotonic_resource memory;
  const json::value document = parse(tokenizer_json, "tokenizer.json", &memory);
  const json::value config =
      config_json.empty() ? json::value(json::object()) : parse(config_json, "tokenizer_config.json", {});
  const Entry root(document, "");
  const Entry model = root.entry("model");
  if (model.string("type", "BPE") != "BPE") {
    model.refuse("type", cat("model \"", model.type(), "\" is not supported; BPE is"));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string(key, "").empty()) model.refuse(key, "is not supported");
  }

  BpeParts parts;
  Decoding decoding;
  Pretokenization pretokenization;
  if (root.find("normalizer") != nullptr) read_normalizer(root.entry("normalizer"), parts.common.normalizer);
  if (root.find("pre_tokenizer") != nullptr) read_pretokenizer(root.entry("pre_tokenizer"), pretokenization);
  if (root.find("decoder") != nullptr) read_decoder(root.entry("decoder"), decoding);
  if (root.find("post_processor") != nullptr) read_post_processor(root.entry("post_processor"), parts.common);
  if (pretokenization.byte_level != decoding.byte_level) {
    root.refuse("decoder", "does not undo what the pre-tokenizer does to bytes");
  }
  parts.spelling = pretokenization.byte_level ? Spelling::byte_level : Spelling::sentencepiece;
  parts.pretokenizer = Pretokenizer(std::move(pretokenization.steps));
  parts.add_prefix_space = pretokenization.add_prefix_space;
  parts.metaspace = pretokenization.metaspace;
  parts.ignore_merges = model.boolean("ignore_merges", false);
  parts.byte_fallback = model.boolean("byte_fallback", false);
  parts.fuse_unknown = model.boolean("fuse_unk", false);
  parts.common.strip_leading_space = decoding.strip;

  if (!model.at("vocab").is_object()) model.refuse("vocab", "not an object");
  std::vector<AddedToken> raw, normalized;
  const std::vector<Entry> added =
      root.find("added_tokens") != nullptr ? root.entries("added_tokens") : std::vector<Entry>();
  Texts texts = read_texts(model.at("vocab").get_object(), added, raw, normalized);
  std::string storage;
  for (AddedToken& token : normalized) token.text = parts.common.normalizer.apply(std::string(token.text), storage);
  parts.common.added = AddedTokens(std::move(raw));
  parts.common.normalized_added = AddedTokens(std::move(normalized));
  for (const auto* ids : {&parts.common.prefix, &parts.common.suffix}) {
    for (const int32_t id : *ids) {
      if (static_cast<size_t>(id) >= texts.views.size()) root.refuse("post_processor", cat("id ", id, " is no token"));
    }
  }

  TokenIndex model_index(texts.views), all_index(texts.views);
  for (size_t id = 0; id < texts.views.size(); ++id) {
    if (texts.in_model[id]) model_index.add(static_cast<int32_t>(id));
    if (texts.kinds[id] != TokenKind::unused) all_index.add(static_cast<int32_t>(id));
    if (parts.spelling == Spelling::sentencepiece && texts.kinds[id] == TokenKind::normal && parts.byte_fallback &&
        spelled_byte(texts.views[id]) >= 0) {
      texts.kinds[id] = TokenKind::byte;
    }
  }
  parts.merges = read_merges(model, model_index);
  parts.in_words = std::move(texts.in_model);
  if (const std::string_view name = model.string("unk_token", ""); !name.empty())
    parts.unknown = model_index.find(name);
  const auto named = [&](const char* key) {
    const std::string_view name = token_name(config, key);
    return name.empty() ? -1 : all_index.find(name);
  };
  parts.common.bos = named("bos_token");
  parts.common.eos = named("eos_token");
  if (parts.common.bos < 0 && !parts.common.prefix.empty()) parts.common.bos = parts.common.prefix.front();
  parts.common.vocabulary = Vocabulary(texts.storage, std::move(texts.views), std::move(texts.kinds), parts.spelling);
  parts.common.end_ids = find_end_ids(parts.common.vocabulary, {parts.common.eos});
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace gristmill::text
