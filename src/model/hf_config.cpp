#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "model/rope.h"
#include "weights/mapped_file.h"

namespace gristmill::model {
namespace {

constexpr int64_t kMostTokens = 1 << 24;
constexpr int64_t kAnyInt = std::numeric_limits<int>::max();

Json read_file(const std::string& path) {
  const weights::MappedFile file(path);
  return parse_json(path, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

Json* member(Json* object, std::string_view name) {
  for (auto& [key, value] : object->object)
    if (key == name) return &value;
  return nullptr;
}

/// object[key] = value; objects are merged member by member.
void merge(Json* object, const std::string& key, const Json& value) {
  Json* const old = member(object, key);
  if (old == nullptr) {
    object->object.push_back({key, value});
  } else if (old->kind == Json::Kind::object && value.kind == Json::Kind::object) {
    for (const auto& [inner, changed] : value.object) merge(old, inner, changed);
  } else {
    *old = value;
  }
}

/// Keys of the rope: "rope_parameters" (transformers 5) or "rope_scaling", where a key may also stand beside it.
class RopeKeys {
 public:
  explicit RopeKeys(const HfConfig& keys)
      : keys_(keys),
        name_(keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling"),
        object_(keys.find(name_)) {
    if (object_ != nullptr && object_->kind != Json::Kind::object) keys.fail(name_, "must be an object or null");
  }

  const Json* find(std::string_view key) const {
    const Json* const own = object_ == nullptr ? nullptr : object_->find(key);
    return own != nullptr && own->kind != Json::Kind::null ? own : nullptr;
  }
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    keys_.fail(find(key) != nullptr || object_ != nullptr ? cat(name_, ".", key) : std::string(key), what);
  }
  std::string type() const {
    for (const char* const key : {"rope_type", "type"})
      if (const Json* const value = find(key)) {
        if (value->kind != Json::Kind::string) fail(key, "must be a string");
        return value->string;
      }
    return "default";
  }
  /// From the object, or else from beside it.
  double positive(std::string_view key, std::optional<double> otherwise = std::nullopt) const {
    const Json* const value = find(key);
    if (value == nullptr) {
      if (otherwise || keys_.has(key)) return keys_.positive(key, otherwise);
      fail(key, "is missing");
    }
    if (value->kind != Json::Kind::number || value->number <= 0) fail(key, "is not a positive number");
    return value->number;
  }
  bool boolean(std::string_view key, bool otherwise) const {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->kind != Json::Kind::boolean) fail(key, "must be true or false");
    return value->boolean;
  }

 private:
  const HfConfig& keys_;
  std::string name_;
  const Json* object_;
};

/// YaRN's factor of cos and sin in transformers: given, or made of mscale and mscale_all_dim (DeepSeek's form).
/// RopeScaling has it in relation to the paper's 0.1 ln(factor) + 1.
double yarn_magnitude(const RopeKeys& rope, double factor) {
  const auto scale = [&](double by) { return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1; };
  if (rope.find("attention_factor") != nullptr) return rope.positive("attention_factor") / scale(1);
  if (rope.find("mscale") != nullptr && rope.find("mscale_all_dim") != nullptr)
    return scale(rope.positive("mscale")) / scale(rope.positive("mscale_all_dim")) / scale(1);
  return 1;
}

RopeScaling read_scaling(const RopeKeys& rope, int context) {
  RopeScaling scaling;
  const std::string type = rope.type();
  if (type == "default" || type == "mrope") return scaling;  // mrope's three positions are one for text
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (type == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.low_frequency_factor = rope.positive("low_freq_factor");
    scaling.high_frequency_factor = rope.positive("high_freq_factor");
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor)
      rope.fail("high_freq_factor", "must be above low_freq_factor");
  } else if (type == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
    scaling.beta_fast = rope.positive("beta_fast", 32.0);
    scaling.beta_slow = rope.positive("beta_slow", 1.0);
    if (!rope.boolean("truncate", true)) rope.fail("truncate", "false is not supported");
  } else {
    rope.fail("rope_type",
              cat(weights::quoted(type), " is not supported (supported: default, linear, llama3, yarn, mrope)"));
  }
  scaling.factor = rope.positive("factor");
  if (scaling.kind == RopeScaling::Kind::yarn) scaling.magnitude = yarn_magnitude(rope, scaling.factor);
  if (scaling.kind != RopeScaling::Kind::linear)
    scaling.original_context = rope.positive("original_max_position_embeddings", static_cast<double>(context));
  return scaling;
}

device::Rope read_rope(const HfConfig& keys, const ModelConfig& config) {
  const RopeKeys rope(keys);
  int dims = config.head_dim;
  const char* dims_key = "head_dim";
  if (keys.has("rotary_dim")) {
    dims = keys.size(dims_key = "rotary_dim");
  } else {
    const double factor = rope.positive("partial_rotary_factor", 1.0);
    if (factor > 1) rope.fail("partial_rotary_factor", "is above 1");
    dims = static_cast<int>(config.head_dim * factor);
    if (factor != 1) dims_key = "partial_rotary_factor";
  }
  if (dims < 2 || dims > config.head_dim || dims % 2 != 0)
    keys.fail(dims_key, cat(dims, " rotary dimensions do not fit heads of ", config.head_dim));
  const double base = rope.positive("rope_theta", 10000.0);
  if (base <= 1) rope.fail("rope_theta", cat(base, " must be above 1"));
  return make_rope(dims, base, read_scaling(rope, config.context));
}

}  // namespace

HfConfig::HfConfig(const std::string& folder, const std::string& overrides)
    : folder_(folder), path_(cat(folder, folder.ends_with('/') ? "" : "/", "config.json")), root_(read_file(path_)) {
  if (root_.kind != Json::Kind::object) throw Error(cat(path_, ": must be an object, not ", name_of(root_.kind)));
  const Json* const text = root_.find("text_config");
  if (text != nullptr && text->kind != Json::Kind::object) fail("text_config", "must be an object");
  if (!overrides.empty()) apply(overrides);
}

void HfConfig::apply(const std::string& overrides) {
  const Json changes = parse_json("--hf-overrides", overrides);
  if (changes.kind != Json::Kind::object)
    throw Error(cat("--hf-overrides: must be a JSON object, not ", name_of(changes.kind)));
  // Looked up anew each time: a key that is added at the root moves the others.
  const auto text_tower = [this] { return member(&root_, "text_config"); };
  for (const auto& [key, value] : changes.object) {
    Json* text = text_tower();
    const bool inner = text != nullptr && text->find(key) != nullptr && root_.find(key) == nullptr;
    Json* const target = inner ? text : &root_;
    merge(target, key, value);
    text = text_tower();
    // transformers writes some keys at both places; the text tower's is the one that counts.
    if (!inner && text != nullptr && value.kind != Json::Kind::object && text->find(key) != nullptr)
      merge(text, key, value);
  }
  if (changes.find("num_hidden_layers") != nullptr ||
      (changes.find("text_config") != nullptr && changes.find("text_config")->find("num_hidden_layers") != nullptr)) {
    const auto layers = static_cast<size_t>(size("num_hidden_layers", std::nullopt, 10000));
    for (const char* const key : {"layer_types", "attn_type_list"})
      for (Json* const object : {&root_, text_tower()}) {
        Json* const list = object == nullptr ? nullptr : member(object, key);
        if (list != nullptr && list->kind == Json::Kind::array && list->array.size() > layers)
          list->array.resize(layers);
      }
  }
}

void HfConfig::fail(std::string_view key, const std::string& what) const {
  throw Error(cat(path_, ": key ", weights::quoted(key), ": ", what));
}

const Json* HfConfig::find(std::string_view key) const {
  const Json* value = nullptr;
  if (const Json* const text = root_.find("text_config")) value = text->find(key);
  if (value == nullptr || value->kind == Json::Kind::null) value = root_.find(key);
  return value == nullptr || value->kind == Json::Kind::null ? nullptr : value;
}

const Json& HfConfig::need(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr) fail(key, "is missing");
  return *value;
}

std::string HfConfig::architecture() const {
  const Json* const names = root_.find("architectures");
  if (names == nullptr || names->kind != Json::Kind::array || names->array.empty() ||
      names->array[0].kind != Json::Kind::string)
    fail("architectures", "must be an array with the name of the model's class");
  return names->array[0].string;
}

int HfConfig::size(std::string_view key, std::optional<int64_t> otherwise, int64_t most) const {
  int64_t value = otherwise.value_or(0);
  if (!otherwise || has(key)) {
    const Json& json = need(key);
    if (json.kind != Json::Kind::number || !json.is_integer) fail(key, "must be a whole number");
    value = json.integer;
  }
  if (value < 1 || value > most) fail(key, cat(value, " is out of range, 1 to ", most));
  return static_cast<int>(value);
}

double HfConfig::positive(std::string_view key, std::optional<double> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const Json& json = need(key);
  if (json.kind != Json::Kind::number || json.number <= 0) fail(key, "is not a positive number");
  return json.number;
}

bool HfConfig::boolean(std::string_view key, bool otherwise) const {
  const Json* const json = find(key);
  if (json == nullptr) return otherwise;
  if (json->kind != Json::Kind::boolean) fail(key, "must be true or false");
  return json->boolean;
}

std::string HfConfig::string(std::string_view key, std::optional<std::string> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const Json& json = need(key);
  if (json.kind != Json::Kind::string) fail(key, "must be a string");
  return json.string;
}

std::vector<int64_t> HfConfig::integers(std::string_view key) const {
  std::vector<int64_t> values;
  const Json* const json = find(key);
  if (json == nullptr) return values;
  if (json->kind != Json::Kind::array) fail(key, "must be an array");
  for (const Json& each : json->array) {
    if (!each.is_integer) fail(key, "must hold whole numbers");
    values.push_back(each.integer);
  }
  return values;
}

std::vector<std::string> HfConfig::strings(std::string_view key) const {
  std::vector<std::string> values;
  const Json* const json = find(key);
  if (json == nullptr) return values;
  if (json->kind != Json::Kind::array) fail(key, "must be an array");
  for (const Json& each : json->array) {
    if (each.kind != Json::Kind::string) fail(key, "must hold strings");
    values.push_back(each.string);
  }
  return values;
}

ModelConfig read_decoder_config(const HfConfig& keys) {
  ModelConfig config;
  config.architecture = keys.architecture();
  config.layers = keys.size("num_hidden_layers", std::nullopt, 10000);
  config.hidden = keys.size("hidden_size");
  config.heads = keys.size("num_attention_heads", std::nullopt, 1 << 14);
  config.kv_heads = keys.size("num_key_value_heads", config.heads, 1 << 14);
  if (config.heads % config.kv_heads != 0)
    keys.fail("num_key_value_heads", cat(config.heads, " heads cannot share ", config.kv_heads, " key heads"));
  if (!keys.has("head_dim") && config.hidden % config.heads != 0)
    keys.fail("num_attention_heads", cat("width ", config.hidden, " does not divide into ", config.heads, " heads"));
  config.head_dim = keys.size("head_dim", std::max(1, config.hidden / config.heads), 1 << 14);
  constexpr int64_t kWidest = 1 << 22;
  if (int64_t{config.heads} * config.head_dim > kWidest)
    keys.fail("head_dim", cat(config.heads, " heads of ", config.head_dim, " are out of range"));
  config.vocabulary = keys.size("vocab_size", std::nullopt, kMostTokens);
  config.context = keys.size("max_position_embeddings", std::nullopt, kAnyInt);
  const double eps = keys.positive("rms_norm_eps");
  if (eps >= 1) keys.fail("rms_norm_eps", cat(eps, " is out of range, below 1"));
  config.norm_eps = static_cast<float>(eps);
  if (const std::string activation = keys.string("hidden_act", "silu"); activation != "silu")
    keys.fail("hidden_act", cat(weights::quoted(activation), " is not supported (supported: silu)"));
  config.rope = read_rope(keys, config);
  return config;
}

int read_experts(const HfConfig& keys) {
  for (const char* const key : {"num_experts", "num_local_experts"})
    if (keys.has(key)) return keys.size(key, std::nullopt, 1 << 16);
  return 0;
}

void apply_sliding_window(const HfConfig& keys, ModelConfig* config) {
  if (!keys.has("sliding_window") || !keys.boolean("use_sliding_window", true)) return;
  const std::vector<std::string> types = keys.strings("layer_types");
  if (!types.empty() && std::find(types.begin(), types.end(), "sliding_attention") == types.end()) return;
  const int window = keys.size("sliding_window", std::nullopt, kAnyInt);
  if (window >= config->context) return;
  LOG_WARNING(keys.path(), ": sliding-window attention is not supported; the context is lowered from ", config->context,
              " to the window of ", window);
  config->context = window;
}

namespace {

constexpr const char* kSupportedQuantizations =
    "supported: fp8 in blocks, per tensor or per channel; compressed-tensors float-quantized and int-quantized with "
    "dynamic activations; ascend folders with a quant_model_description.json";

/// A string member, "" when absent or null.
std::string member(const Json* object, const char* key) {
  const Json* const value = object == nullptr ? nullptr : object->find(key);
  return value == nullptr ? "" : value->string;
}

/// Members that are present and neither null, false nor empty.
bool is_set(const Json& object, const char* key) {
  const Json* const value = object.find(key);
  return value != nullptr && (value->boolean || value->number != 0 || !value->string.empty() || !value->array.empty() ||
                              !value->object.empty());
}

HfQuantization read_compressed_tensors(const HfConfig& keys, const Json& quantization) {
  const std::string format = member(&quantization, "format");
  const bool integers = format == "int-quantized";
  if (!integers && format != "float-quantized" && format != "naive-quantized")
    keys.fail("quantization_config.format",
              cat(weights::quoted(format), " is not supported (", kSupportedQuantizations, ")"));
  if (is_set(quantization, "transform_config"))
    keys.fail("quantization_config.transform_config", "transforms are not supported");
  if (const std::string sparsity = member(quantization.find("sparsity_config"), "format");
      !sparsity.empty() && sparsity != "dense")
    keys.fail("quantization_config.sparsity_config", "sparse weights are not supported");
  const Json* const groups = quantization.find("config_groups");
  if (groups == nullptr || groups->object.empty())
    keys.fail("quantization_config.config_groups", "must say how weights are quantized");
  for (const auto& [name, group] : groups->object) {
    const std::string key = cat("quantization_config.config_groups.", name);
    const Json* const weight = group.find("weights");
    const Json* const input = group.find("input_activations");
    const Json* const bits = weight == nullptr ? nullptr : weight->find("num_bits");
    if (bits == nullptr || bits->integer != 8)
      keys.fail(key, cat("only 8-bit weights (", kSupportedQuantizations, ")"));
    const std::string strategy = member(weight, "strategy");
    if (strategy != "channel" && strategy != "tensor")
      keys.fail(key,
                cat("weights.strategy ", weights::quoted(strategy), " is not supported (supported: channel, tensor)"));
    if (!integers) continue;
    if (const Json* const symmetric = weight->find("symmetric"); symmetric != nullptr && !symmetric->boolean)
      keys.fail(key, "weights that are not symmetric are not supported");
    const Json* const dynamic = input == nullptr ? nullptr : input->find("dynamic");
    if (dynamic == nullptr || !dynamic->boolean || member(input, "strategy") != "token")
      keys.fail(key, "activations must be quantized dynamically per token; others are not supported");
  }
  return {integers ? HfQuantization::Kind::int8_dynamic : HfQuantization::Kind::fp8_rows};
}

}  // namespace

HfQuantization read_quantization(const HfConfig& keys) {
  const Json* const quantization = keys.find("quantization_config");
  if (quantization == nullptr) return {};
  if (quantization->kind != Json::Kind::object) keys.fail("quantization_config", "must be an object");
  const Json* const method = quantization->find("quant_method");
  if (method == nullptr || method->kind != Json::Kind::string)
    keys.fail("quantization_config.quant_method", "must be a string");
  if (method->string == "compressed-tensors") return read_compressed_tensors(keys, *quantization);
  if (method->string != "fp8")
    keys.fail("quantization_config.quant_method",
              cat(weights::quoted(method->string), " is not supported (", kSupportedQuantizations, ")"));
  const Json* const size = quantization->find("weight_block_size");
  if (size == nullptr || size->kind == Json::Kind::null) return {HfQuantization::Kind::fp8_rows};
  const auto fits = [](const Json& each) { return each.is_integer && each.integer >= 1 && each.integer <= 1 << 20; };
  if (size->kind != Json::Kind::array || size->array.size() != 2 || !fits(size->array[0]) || !fits(size->array[1]))
    keys.fail("quantization_config.weight_block_size", "must be two positive numbers, e.g. [128, 128]");
  return {HfQuantization::Kind::fp8_blocks, static_cast<int>(size->array[0].integer),
          static_cast<int>(size->array[1].integer)};
}

}  // namespace gristmill::model
