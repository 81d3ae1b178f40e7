#include "text/text_model.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/tokenizer_hf.h"
#include "weights/gguf.h"
#include "weights/mapped_file.h"

namespace gristmill::text {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uintmax_t largest_text = 512u << 20;

/// The file's text, or "" when there is no such file or nothing in it. Throws Error when it is no regular file.
std::string read_if_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return "";
  if (fs::is_regular_file(status) && fs::file_size(path, error) == 0) return "";
  const weights::MappedFile file(path.string());
  if (file.bytes().size() > largest_text) throw Error(cat(path.string(), ": larger than any such file should be"));
  return std::string(file.text());
}

json::object parse_object(const fs::path& path, const std::string& text) {
  if (text.empty()) return {};
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error) throw Error(cat(path.string(), ": not valid JSON: ", error.message()));
  if (!value.is_object()) throw Error(cat(path.string(), ": not a JSON object"));
  return std::move(value.get_object());
}

// eos_token_id is a number or a list of them.
void add_end_ids(const json::object& config, std::vector<int32_t>& ids) {
  const auto add = [&](const json::value& value) {
    if (!value.is_int64()) return;
    const int64_t id = value.get_int64();
    if (id < 0 || id > INT32_MAX) return;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<int32_t>(id));
  };
  const json::value* value = config.if_contains("eos_token_id");
  if (value == nullptr) return;
  if (value->is_array()) {
    for (const json::value& one : value->get_array()) add(one);
  } else {
    add(*value);
  }
}

// Newer folders have chat_template.jinja; older ones keep the template, or a list of named ones, in
// tokenizer_config.json.
void take_folder_template(const fs::path& folder, const json::object& tokenizer_config, TextModel& model) {
  model.chat_template_origin = (folder / "chat_template.jinja").string();
  model.chat_template = read_if_there(model.chat_template_origin);
  if (!model.chat_template.empty()) return;
  model.chat_template_origin = cat((folder / "tokenizer_config.json").string(), ": key \"chat_template\"");
  model.chat_template = default_chat_template;
  const json::value* value = tokenizer_config.if_contains("chat_template");
  if (value != nullptr && value->is_string()) model.chat_template = std::string(value->get_string());
  if (value != nullptr && value->is_array()) {
    for (const json::value& entry : value->get_array()) {
      if (!entry.is_object()) continue;
      const json::value* name = entry.get_object().if_contains("name");
      const json::value* source = entry.get_object().if_contains("template");
      if (name != nullptr && name->is_string() && name->get_string() == "default" && source != nullptr &&
          source->is_string()) {
        model.chat_template = std::string(source->get_string());
        return;
      }
    }
  }
}

/// Every token needs a row of the embedding; rows without a token are padding.
void check_vocabulary(const Tokenizer& tokenizer, int64_t rows, const std::string& tokens_of,
                      const std::string& rows_of) {
  if (tokenizer.vocabulary() <= rows) return;
  throw Error(cat(tokens_of, ": the vocabulary has ", tokenizer.vocabulary(), " tokens, more than the ", rows,
                  " rows of the embedding (", rows_of, "); tokenizer and weights do not belong together"));
}

void finish(TextModel& model) {
  const auto text_of = [&](int32_t id) {
    return id >= 0 ? std::string(model.tokenizer->token_text(id)) : std::string();
  };
  model.bos = text_of(model.tokenizer->bos());
  model.eos = text_of(model.tokenizer->eos());
}

TextModel from_gguf(const std::string& path) {
  const auto file = weights::GgufFile::open(path);
  TextModel model;
  model.tokenizer = make_gguf_tokenizer(file);
  constexpr const char* kTable = "token_embd.weight";
  if (file->contains(kTable)) {
    check_vocabulary(*model.tokenizer, file->tensor(kTable).rows(), cat(path, ": key \"tokenizer.ggml.tokens\""),
                     cat("tensor \"", kTable, "\""));
  }
  model.chat_template = file->string("tokenizer.chat_template", default_chat_template);
  model.chat_template_origin = cat(path, ": key \"tokenizer.chat_template\"");
  model.end_ids = model.tokenizer->end_ids();
  finish(model);
  return model;
}

TextModel from_folder(const fs::path& folder) {
  const std::string tokenizer_json = read_if_there(folder / "tokenizer.json");
  if (tokenizer_json.empty()) {
    throw Error(cat((folder / "tokenizer.json").string(), ": missing or empty; a model folder needs one"));
  }
  const fs::path tokenizer_config_path = folder / "tokenizer_config.json";
  const std::string tokenizer_config = read_if_there(tokenizer_config_path);
  TextModel model;
  try {
    model.tokenizer = make_hf_tokenizer(tokenizer_json, tokenizer_config);
  } catch (const Error& error) {
    throw Error(cat(folder.string(), ": ", error.what()));
  }
  take_folder_template(folder, parse_object(tokenizer_config_path, tokenizer_config), model);
  model.end_ids = model.tokenizer->end_ids();
  model.generation_config = read_if_there(folder / "generation_config.json");
  add_end_ids(parse_object(folder / "generation_config.json", model.generation_config), model.end_ids);
  const json::object config = parse_object(folder / "config.json", read_if_there(folder / "config.json"));
  add_end_ids(config, model.end_ids);
  const json::value* rows = config.if_contains("vocab_size");
  if (const json::value* inner = config.if_contains("text_config"); inner != nullptr && inner->is_object()) {
    add_end_ids(inner->get_object(), model.end_ids);
    if (const json::value* own = inner->get_object().if_contains("vocab_size")) rows = own;
  }
  if (rows != nullptr && rows->is_int64()) {
    check_vocabulary(*model.tokenizer, rows->get_int64(), (folder / "tokenizer.json").string(),
                     cat("key \"vocab_size\" of ", (folder / "config.json").string()));
  }
  finish(model);
  return model;
}

}  // namespace

TextModel load_text_model(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? from_folder(path) : from_gguf(path);
}

}  // namespace gristmill::text
