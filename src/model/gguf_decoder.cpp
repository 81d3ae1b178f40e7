#include "model/gguf_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "base/error.h"
#include "model/gguf_config.h"
#include "weights/mapped_file.h"

namespace gristmill::model {
namespace {

struct Architecture {
  std::string_view gguf, hf_class;
};
constexpr Architecture kArchitectures[] = {
    {"qwen2", "Qwen2ForCausalLM"},    {"qwen3", "Qwen3ForCausalLM"},          {"qwen3moe", "Qwen3MoeForCausalLM"},
    {"qwen35", "Qwen3_5ForCausalLM"}, {"qwen35moe", "Qwen3_5MoeForCausalLM"}, {"minimax-m2", "MiniMaxM2ForCausalLM"}};

/// What becomes of a tensor's numbers or shape.
enum class Change : uint8_t {
  none,
  minus_one,         ///< 1 + w was stored
  log_of_negative,   ///< -exp(w) was stored
  middle_dimension,  ///< [a, b] is [a, 1, b]
  one_row,           ///< [n] is [1, n]
};

struct LayerTensor {
  std::string_view gguf, hf;  ///< behind "blk.N." and "model.layers.N."
  Change change = Change::none;
};
constexpr LayerTensor kLayerTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},      {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},      {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},          {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"}, {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"}, {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},           {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
};
constexpr LayerTensor kQwen3_5Tensors[] = {
    {"attn_norm.weight", "input_layernorm.weight", Change::minus_one},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", Change::minus_one},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", Change::minus_one},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", Change::minus_one},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight"},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight"},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight"},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight"},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", Change::middle_dimension},
    {"ssm_a", "linear_attn.A_log", Change::log_of_negative},
    {"ssm_dt.bias", "linear_attn.dt_bias"},
    {"ssm_norm.weight", "linear_attn.norm.weight"},
    {"ssm_out.weight", "linear_attn.out_proj.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", Change::one_row},
};
constexpr LayerTensor kMiniMaxTensors[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
};

class DecoderTensors final : public weights::Checkpoint {
 public:
  /// `layers` of the trunk; what lies behind them is a draft head.
  DecoderTensors(std::shared_ptr<const weights::GgufFile> file, int layers)
      : file_(std::move(file)), layers_(layers), architecture_(file_->string("general.architecture")) {
    const bool zero_centred = is_qwen3_5();
    for (const std::string& name : file_->names()) {
      if (name == "token_embd.weight") {
        add(name, "model.embed_tokens.weight", Change::none);
      } else if (name == "output_norm.weight") {
        add(name, "model.norm.weight", zero_centred ? Change::minus_one : Change::none);
      } else if (name == "output.weight") {
        add(name, "lm_head.weight", Change::none);
      } else if (name != "rope_freqs.weight") {  // read with the rope's keys
        add_layer_tensor(name);
      }
    }
  }

  std::string path() const override { return file_->path(); }
  bool contains(std::string_view name) const override { return tensors_.contains(name); }
  TensorView tensor(std::string_view name) const override {
    const auto at = tensors_.find(name);
    if (at == tensors_.end()) throw Error(cat(path(), ": tensor ", weights::quoted(name), ": is missing"));
    return at->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  void drop_pages(std::span<const std::byte> bytes) const override { file_->drop_pages(bytes); }

 private:
  bool is_qwen3_5() const { return architecture_.starts_with("qwen35"); }

  void add_layer_tensor(const std::string& name) {
    constexpr std::string_view kBlock = "blk.";
    const size_t dot = name.find('.', kBlock.size());
    const std::string number =
        name.starts_with(kBlock) && dot != std::string::npos ? name.substr(kBlock.size(), dot - kBlock.size()) : "";
    if (number.empty() || number.size() > 5 || number.find_first_not_of("0123456789") != std::string::npos)
      return add(name, name, Change::none);  // listed as surplus under its own name
    const int layer = std::stoi(number);
    if (layer >= layers_) return add(name, "mtp." + name, Change::none);
    const std::string_view rest = std::string_view(name).substr(dot + 1);
    const std::string prefix = cat("model.layers.", layer, ".");
    const auto find = [&](std::span<const LayerTensor> table) {
      const auto at =
          std::find_if(table.begin(), table.end(), [&](const LayerTensor& each) { return each.gguf == rest; });
      if (at == table.end()) return false;
      add(name, prefix + std::string(at->hf), at->change);
      return true;
    };
    if (is_qwen3_5() && find(kQwen3_5Tensors)) return;
    if (architecture_ == "minimax-m2" && find(kMiniMaxTensors)) return;
    if (add_experts(name, rest, prefix) || find(kLayerTensors)) return;
    add(name, name, Change::none);
  }

  /// One tensor [experts, rows, columns] to one for each expert (and matrix, where gate and up are together).
  bool add_experts(const std::string& name, std::string_view rest, const std::string& prefix) {
    const bool minimax = architecture_ == "minimax-m2";
    std::vector<std::string> parts;
    const std::string gate = minimax ? "w1" : "gate_proj", up = minimax ? "w3" : "up_proj";
    if (rest == "ffn_gate_exps.weight") parts = {gate};
    if (rest == "ffn_up_exps.weight") parts = {up};
    if (rest == "ffn_down_exps.weight") parts = {minimax ? "w2" : "down_proj"};
    if (rest == "ffn_gate_up_exps.weight") parts = {gate, up};
    if (parts.empty()) return false;
    const TensorView all = file_->tensor(name);
    const auto matrices = static_cast<int64_t>(parts.size());
    if (all.shape.size() != 3 || all.shape[1] % matrices != 0)
      throw Error(cat(path(), ": tensor ", weights::quoted(name), ": must have three dimensions, experts outermost"));
    const std::string block = prefix + (minimax ? "block_sparse_moe.experts." : "mlp.experts.");
    const int64_t count = all.shape[0] * matrices;
    const size_t bytes = all.bytes.size() / static_cast<size_t>(count);  // whole rows
    for (int64_t i = 0; i < count; ++i) {
      TensorView one = all;
      one.name = cat(block, i / matrices, ".", parts[static_cast<size_t>(i % matrices)], ".weight");
      one.shape = {all.shape[1] / matrices, all.shape[2]};
      one.bytes = all.bytes.subspan(static_cast<size_t>(i) * bytes, bytes);
      tensors_[one.name] = one;
    }
    return true;
  }

  void add(const std::string& name, const std::string& hf_name, Change change) {
    TensorView tensor = file_->tensor(name);
    tensor.name = hf_name;
    if (change == Change::middle_dimension && tensor.shape.size() == 2)
      tensor.shape = {tensor.shape[0], 1, tensor.shape[1]};
    if (change == Change::one_row && tensor.shape.size() == 1) tensor.shape = {1, tensor.shape[0]};
    if (change == Change::minus_one || change == Change::log_of_negative) compute(name, change, &tensor);
    tensors_[hf_name] = std::move(tensor);
  }

  void compute(const std::string& name, Change change, TensorView* tensor) {
    const auto source = weights::make_weight_source(file_, name, weights::ReadAs::exact);
    constexpr int64_t kLongest = 1 << 22;
    if (source->rows() != 1 || source->columns() > kLongest)
      throw Error(cat(path(), ": tensor ", weights::quoted(name), ": must be a vector"));
    std::vector<float>& values = computed_.emplace_back(static_cast<size_t>(source->columns()));
    source->read_f32(0, 1, values.data());
    for (float& value : values) {
      if (change == Change::log_of_negative && !(value < 0))
        throw Error(cat(path(), ": tensor ", weights::quoted(name), ": ", value, " is not below 0"));
      value = change == Change::minus_one ? value - 1.0f : std::log(-value);
    }
    tensor->type = StorageType::f32;
    tensor->bytes = std::as_bytes(std::span<const float>(values));
  }

  std::shared_ptr<const weights::GgufFile> file_;
  int layers_;
  std::string architecture_;
  std::deque<std::vector<float>> computed_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

/// The keys of config.json that builders look up, made of those of the file.
class KeyMaker {
 public:
  KeyMaker(const weights::GgufFile& file, const DecoderTensors& tensors, const ModelConfig& config)
      : file_(file),
        tensors_(tensors),
        config_(config),
        prefix_(std::string(file.string("general.architecture")) + ".") {
    root_.kind = Json::Kind::object;
  }

  Json make() && {
    Json name = text(config_.architecture), names;
    names.kind = Json::Kind::array;
    names.array.push_back(std::move(name));
    put("architectures", std::move(names));
    copy("intermediate_size", "feed_forward_length");
    copy("num_experts", "expert_count");
    copy("num_experts_per_tok", "expert_used_count");
    copy("moe_intermediate_size", "expert_feed_forward_length");
    copy("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
    if (config_.architecture == "MiniMaxM2ForCausalLM") minimax();
    if (config_.architecture == "Qwen3MoeForCausalLM") qwen3_moe();
    if (file_.has(prefix_ + "ssm.state_size")) delta_net();
    return std::move(root_);
  }

 private:
  static Json number(int64_t value) {
    Json json;
    json.kind = Json::Kind::number;
    json.is_integer = true;
    json.integer = value;
    json.number = static_cast<double>(value);
    return json;
  }
  static Json text(std::string value) {
    Json json;
    json.kind = Json::Kind::string;
    json.string = std::move(value);
    return json;
  }
  void put(const char* key, Json value) { root_.object.push_back({key, std::move(value)}); }
  void copy(const char* to, const char* from) {
    const std::string key = prefix_ + from;
    if (file_.has(key)) put(to, number(file_.integer(key)));
  }
  bool layer_has(int layer, const char* name) const {
    return tensors_.contains(cat("model.layers.", layer, ".", name));
  }

  void minimax() {
    // The converter writes the experts' width under both names, older ones under the plain one only.
    if (file_.has(prefix_ + "expert_feed_forward_length")) {
      std::erase_if(root_.object, [](const JsonMember& each) { return each.first == "intermediate_size"; });
      copy("intermediate_size", "expert_feed_forward_length");
    }
    const std::string key = prefix_ + "expert_gating_func";
    constexpr int64_t kSigmoid = 2;
    if (const int64_t gating = file_.integer(key, kSigmoid); gating != kSigmoid)
      throw Error(cat(file_.path(), ": key ", weights::quoted(key), ": ", gating, " is not supported (supported: 2)"));
  }
  void qwen3_moe() {
    Json renormalize;
    renormalize.kind = Json::Kind::boolean;
    renormalize.boolean = file_.boolean(prefix_ + "expert_weights_norm", true);
    put("norm_topk_prob", std::move(renormalize));
    Json dense;
    dense.kind = Json::Kind::array;
    for (int i = 0; i < config_.layers; ++i)
      if (!layer_has(i, "mlp.gate.weight")) dense.array.push_back(number(i));
    put("mlp_only_layers", std::move(dense));
  }
  void delta_net() {
    copy("linear_conv_kernel_dim", "ssm.conv_kernel");
    copy("linear_key_head_dim", "ssm.state_size");
    copy("linear_num_key_heads", "ssm.group_count");
    copy("linear_num_value_heads", "ssm.time_step_rank");
    const std::string key = prefix_ + "ssm.inner_size";
    const int64_t inner = file_.integer(key), heads = file_.integer(prefix_ + "ssm.time_step_rank");
    if (heads < 1 || inner < 1 || inner % heads != 0)
      throw Error(
          cat(file_.path(), ": key ", weights::quoted(key), ": ", inner, " does not divide into ", heads, " heads"));
    put("linear_value_head_dim", number(inner / heads));
    Json types;
    types.kind = Json::Kind::array;
    for (int i = 0; i < config_.layers; ++i)
      types.array.push_back(text(layer_has(i, "linear_attn.out_proj.weight") ? "linear_attention" : "full_attention"));
    put("layer_types", std::move(types));
  }

  const weights::GgufFile& file_;
  const DecoderTensors& tensors_;
  const ModelConfig& config_;
  std::string prefix_;
  Json root_;
};

}  // namespace

std::string_view hf_class_of_gguf(std::string_view architecture) {
  for (const Architecture& each : kArchitectures)
    if (each.gguf == architecture) return each.hf_class;
  return "";
}

DecoderFiles open_gguf_decoder(const std::shared_ptr<const weights::GgufFile>& file) {
  ModelConfig config = read_gguf_config(*file);
  config.architecture = hf_class_of_gguf(file->string("general.architecture"));
  const auto tensors = std::make_shared<const DecoderTensors>(file, config.layers);
  HfConfig keys(file->path(), KeyMaker(*file, *tensors, config).make());
  return {std::move(keys), std::move(config), tensors, /*tiled_value_heads=*/true};
}

}  // namespace gristmill::model
