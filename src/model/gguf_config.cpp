#include "model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "model/rope.h"
#include "weights/mapped_file.h"

namespace gristmill::model {
namespace {

/// The keys of one architecture.
class Keys {
 public:
  explicit Keys(const weights::GgufFile& file) : file_(file), prefix_(cat(file.string("general.architecture"), ".")) {}

  const weights::GgufFile& file() const { return file_; }
  std::string full(const char* key) const { return prefix_ + key; }
  bool has(const char* key) const { return file_.has(full(key)); }

  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw Error(cat(file_.path(), ": key ", weights::quoted(full(key)), ": ", what));
  }

  /// 1 .. most; a key that may differ by layer must be the same for all.
  int size(const char* key, std::optional<int64_t> otherwise = std::nullopt, int most = 1 << 20) const {
    int64_t value = 0;
    if (file_.is_array(full(key))) {
      std::vector<int64_t> all = file_.integers(full(key));
      std::erase(all, 0);  // of layers that have no such thing: recurrent ones have no key heads
      if (all.empty()) fail(key, "is an empty array");
      if (std::any_of(all.begin(), all.end(), [&](int64_t each) { return each != all.front(); }))
        fail(key, "differs from layer to layer, which is not supported");
      value = all.front();
    } else {
      value = file_.integer(full(key), otherwise);
    }
    if (value < 1 || value > most) fail(key, cat(value, " is out of range, 1 to ", most));
    return static_cast<int>(value);
  }
  double positive(const char* key, std::optional<double> otherwise = std::nullopt) const {
    const double value = file_.number(full(key), otherwise);
    if (!std::isfinite(value) || value <= 0) fail(key, cat(value, " is not a positive number"));
    return value;
  }

 private:
  const weights::GgufFile& file_;
  std::string prefix_;
};

/// Divisors of the frequencies, one per pair (how converters write llama3 scaling).
std::vector<float> read_divisors(const weights::GgufFile& file, int pairs) {
  constexpr const char* kName = "rope_freqs.weight";
  if (!file.contains(kName)) return {};
  const TensorView tensor = file.tensor(kName);
  if (tensor.type != StorageType::f32 || tensor.rows() != 1 || tensor.columns() != pairs)
    throw Error(cat(file.path(), ": tensor ", weights::quoted(kName), ": must be ", pairs, " float32 numbers"));
  std::vector<float> divisors(static_cast<size_t>(pairs));
  std::memcpy(divisors.data(), tensor.bytes.data(), tensor.bytes.size());
  for (const float divisor : divisors)
    if (!std::isfinite(divisor) || divisor <= 0)
      throw Error(cat(file.path(), ": tensor ", weights::quoted(kName), ": ", divisor, " is not a positive number"));
  return divisors;
}

device::Rope read_rope(const Keys& keys, const ModelConfig& config) {
  const int dims = keys.size("rope.dimension_count", config.head_dim);
  if (dims > config.head_dim || dims % 2 != 0)
    keys.fail("rope.dimension_count", cat(dims, " rotary dimensions do not fit heads of ", config.head_dim));
  RopeScaling scaling;
  const std::string_view type = keys.file().string(keys.full("rope.scaling.type"), "none");
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (type == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
  } else if (type != "none") {
    keys.fail("rope.scaling.type", cat(weights::quoted(type), " is not supported (supported: none, linear, yarn)"));
  }
  if (scaling.kind != RopeScaling::Kind::none) {
    scaling.factor = keys.positive("rope.scaling.factor");
  } else if (keys.has("rope.scale_linear")) {  // its name before there were types
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor = keys.positive("rope.scale_linear");
  }
  if (scaling.kind == RopeScaling::Kind::yarn) {
    scaling.original_context =
        keys.size("rope.scaling.original_context_length", config.context, std::numeric_limits<int>::max());
    scaling.magnitude = keys.positive("rope.scaling.attn_factor", 1.0);
    scaling.beta_fast = keys.positive("rope.scaling.yarn_beta_fast", 32.0);
    scaling.beta_slow = keys.positive("rope.scaling.yarn_beta_slow", 1.0);
  }
  scaling.divisors = read_divisors(keys.file(), dims / 2);
  const double base = keys.positive("rope.freq_base", 10000.0);
  if (base <= 1) keys.fail("rope.freq_base", cat(base, " must be above 1"));
  return make_rope(dims, base, scaling);
}

}  // namespace

ModelConfig read_gguf_config(const weights::GgufFile& file) {
  const Keys keys(file);
  ModelConfig config;
  config.architecture = file.string("general.architecture");
  config.layers = keys.size("block_count", std::nullopt, 10000);
  // Draft layers are counted with the others and lie behind them.
  if (const int drafts =
          keys.has("nextn_predict_layers") ? static_cast<int>(file.integer(keys.full("nextn_predict_layers"))) : 0;
      drafts > 0) {
    if (drafts >= config.layers) keys.fail("nextn_predict_layers", cat(drafts, " of ", config.layers, " layers"));
    config.layers -= drafts;
  }
  config.hidden = keys.size("embedding_length");
  // Mixtures need not have one that is dense.
  constexpr const char* kOfExperts = "expert_feed_forward_length";
  const std::optional<int64_t> of_experts =
      keys.has(kOfExperts) ? std::optional<int64_t>(keys.size(kOfExperts)) : std::nullopt;
  config.ffn = keys.size("feed_forward_length", of_experts);
  config.heads = keys.size("attention.head_count", std::nullopt, 1 << 14);
  config.kv_heads = keys.size("attention.head_count_kv", config.heads, 1 << 14);
  if (config.heads % config.kv_heads != 0)
    keys.fail("attention.head_count_kv", cat(config.heads, " heads cannot share ", config.kv_heads, " key heads"));
  if (!keys.has("attention.key_length") && config.hidden % config.heads != 0)
    keys.fail("attention.head_count", cat("width ", config.hidden, " does not divide into ", config.heads, " heads"));
  config.head_dim = keys.size("attention.key_length", config.hidden / config.heads, 1 << 14);
  if (keys.size("attention.value_length", config.head_dim, 1 << 14) != config.head_dim)
    keys.fail("attention.value_length", "differs from the key length, which is not supported");
  config.context = keys.size("context_length", std::nullopt, std::numeric_limits<int>::max());
  if (keys.has("attention.sliding_window")) {
    const int window = keys.size("attention.sliding_window", std::nullopt, std::numeric_limits<int>::max());
    if (window < config.context) {
      LOG_WARNING(file.path(), ": sliding-window attention is not supported; the context is lowered from ",
                  config.context, " to the window of ", window);
      config.context = window;
    }
  }
  config.norm_eps = static_cast<float>(keys.positive("attention.layer_norm_rms_epsilon"));
  constexpr int kMostTokens = 1 << 24;
  if (keys.has("vocab_size")) {
    config.vocabulary = keys.size("vocab_size", std::nullopt, kMostTokens);
  } else {
    const TensorView table = file.tensor("token_embd.weight");
    if (table.rows() > kMostTokens)
      throw Error(cat(file.path(), ": tensor \"token_embd.weight\": ", table.rows(), " tokens are out of range"));
    config.vocabulary = static_cast<int>(table.rows());
  }
  config.tied_embeddings = !file.contains("output.weight");
  config.rope = read_rope(keys, config);
  return config;
}

}  // namespace gristmill::model
