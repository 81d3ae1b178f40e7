#include "quantize/quantizer.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/half.h"
#include "quantize/json_text.h"
#include "quantize/matrix_quantizer.h"
#include "quantize/quarot.h"
#include "weights/mapped_file.h"
#include "weights/quant_recipe.h"
#include "weights/safetensors_folder.h"
#include "weights/weight_views.h"

namespace gristmill::quantize {
namespace {

namespace fs = std::filesystem;
using weights::QuantType;

const char* dtype_of(StorageType type) {
  switch (type) {
    case StorageType::f32:
      return "F32";
    case StorageType::f16:
      return "F16";
    case StorageType::bf16:
      return "BF16";
    case StorageType::f64:
      return "F64";
    case StorageType::i8:
      return "I8";
    case StorageType::u8:
      return "U8";
    case StorageType::i16:
      return "I16";
    case StorageType::i32:
      return "I32";
    case StorageType::i64:
      return "I64";
    case StorageType::boolean:
      return "BOOL";
    default:
      return "F8_E4M3";
  }
}

bool is_float(StorageType type) {
  return type == StorageType::f32 || type == StorageType::f16 || type == StorageType::bf16;
}

std::string encoded(const std::vector<float>& values, const std::string& dtype) {
  if (dtype == "F32") {
    std::string bytes(values.size() * sizeof(float), '\0');
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  std::string bytes;
  bytes.reserve(values.size() * 2);
  for (const float value : values) {
    const uint16_t bits = dtype == "F16" ? f32_to_f16(value) : f32_to_bf16(value);
    bytes.push_back(static_cast<char>(bits & 0xff));
    bytes.push_back(static_cast<char>(bits >> 8));
  }
  return bytes;
}

bool all_finite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

/// A folder that goes away with this object, unless it has been renamed.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path path) : path_(std::move(path)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// One tensor of the source, or one expert's part of it, and what becomes of it.
struct Job {
  TensorView source;
  std::string name;  ///< of the result; X.weight for a matrix X
  int64_t first_row = 0, rows = 0, columns = 0;
  std::vector<int64_t> shape;  ///< of the part
  MatrixScheme scheme{QuantType::plain};
  std::vector<TensorPlan> tensors;
};

class FolderQuantizer {
 public:
  FolderQuantizer(const QuantizeOptions& options, const InputRanges& ranges)
      : options_(options),
        ranges_(ranges),
        keys_(checked(options)),
        config_(model::read_decoder_config(keys_)),
        checkpoint_(weights::SafetensorsFolder::open(options.source)),
        team_(options.threads) {
    const model::HfQuantization quantization = model::read_quantization(keys_);
    if (quantization.kind != model::HfQuantization::Kind::none &&
        quantization.kind != model::HfQuantization::Kind::fp8_blocks)
      throw Error(cat(keys_.path(), ": only float weights and FP8 in blocks can be quantized"));
    options_.target = new_folder(options.target);
    fp8_ = quantization;
    const bool has_experts = model::read_experts(keys_) != 0;
    recipe_ = options.recipe.empty() ? weights::recipe_for(config_.architecture, has_experts)
                                     : weights::recipe_of(options.recipe, has_experts);
    if (options.quarot) quarot_.emplace(keys_, config_, checkpoint_);
  }

  QuantizeReport run(Progress& progress) {
    plan();
    const PartialFolder folder(options_.target + ".partial");
    const fs::path& partial = folder.path();
    write_weights(partial.string(), progress);
    if (!options_.only_rotate) write_description(partial.string());
    write_config(partial.string());
    copy_files(partial);
    if (quarot_ && !options_.only_rotate) write_rotation(quarot_->global_rotation(), partial);
    fs::rename(partial, options_.target);
    return std::move(report_);
  }

 private:
  static const std::string& checked(const QuantizeOptions& options) {
    if (!fs::is_directory(options.source))
      throw Error(cat(options.source, ": must be a Hugging Face folder (config.json and safetensors)"));
    if (weights::QuantDescription::find(options.source) != nullptr)
      throw Error(cat(options.source, ": is quantized already; give the float checkpoint"));
    return options.source;
  }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw Error(cat(options_.source, ": tensor ", weights::quoted(name), ": ", what));
  }

  void plan() {
    for (const std::string& name : checkpoint_->names()) {
      if (name.ends_with("_scale_inv")) continue;
      if (quarot_ && quarot_->leaves_out(name)) {
        ++report_.left_out;
        continue;
      }
      plan_tensor(checkpoint_->tensor(name));
    }
    const std::string head = "lm_head.weight";
    if (quarot_ && !checkpoint_->contains(head) && checkpoint_->contains(quarot_->table())) {
      add_part(checkpoint_->tensor(quarot_->table()), head, 0, checkpoint_->tensor(quarot_->table()).shape);
    }
    choose_group();
    bool any = false;
    for (Job& job : jobs_) {
      if (job.scheme.type == QuantType::plain) {
        const bool becomes_bf16 = job.source.type == StorageType::fp8_e4m3;
        const bool widens = is_bias_of_quantized(job.name);
        job.tensors = {{job.name, becomes_bf16 ? "BF16" : widens ? "F32" : dtype_of(job.source.type), job.shape}};
        continue;
      }
      any = true;
      job.scheme.as_float16 = job.source.type == StorageType::f16;
      job.tensors = planned_tensors(base_of(job), job.scheme, job.rows, job.columns);
    }
    if (!any && !options_.only_rotate)
      throw Error(cat(options_.source, ": the recipe quantizes none of its tensors; try --recipe all-linear"));
  }

  void plan_tensor(const TensorView& tensor) {
    // Experts in one tensor are split: one matrix for each, gate rows before up rows.
    const std::string gate_up = ".experts.gate_up_proj", down = ".experts.down_proj";
    if (tensor.shape.size() == 3 && (tensor.name.ends_with(gate_up) || tensor.name.ends_with(down))) {
      const int64_t experts = tensor.shape[0], rows = tensor.shape[1], columns = tensor.shape[2];
      const bool pair = tensor.name.ends_with(gate_up);
      if (pair && rows % 2 != 0) fail(tensor.name, cat("has an odd number of gate and up rows (", rows, ")"));
      const std::string prefix =
          tensor.name.substr(0, tensor.name.size() - (pair ? gate_up : down).size()) + ".experts.";
      for (int64_t e = 0; e < experts; ++e) {
        const std::string expert = cat(prefix, e, ".");
        if (!pair) {
          add_part(tensor, expert + "down_proj.weight", e * rows, {rows, columns});
          continue;
        }
        add_part(tensor, expert + "gate_proj.weight", e * rows, {rows / 2, columns});
        add_part(tensor, expert + "up_proj.weight", e * rows + rows / 2, {rows / 2, columns});
      }
      return;
    }
    add_part(tensor, tensor.name, 0, tensor.shape);
  }

  void add_part(const TensorView& tensor, const std::string& name, int64_t first_row, std::vector<int64_t> shape) {
    Job job;
    job.source = tensor;
    job.name = name;
    job.first_row = first_row;
    job.columns = shape.empty() ? 1 : shape.back();
    job.rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) job.rows *= shape[i];
    job.shape = std::move(shape);
    const bool int4_scheme = options_.scheme == Scheme::w4a8 || options_.scheme == Scheme::w4a8_group;
    const weights::WeightBits bits =
        options_.only_rotate ? weights::WeightBits::as_stored : weights::bits_of(recipe_, int4_scheme, name);
    if (bits != weights::WeightBits::as_stored && job.shape.size() == 2) {
      if (!is_float(tensor.type) && !has_block_scales(tensor))
        fail(tensor.name, cat("type ", dtype_of(tensor.type), " is no float that could be quantized"));
      job.scheme.type = bits == weights::WeightBits::int4 ? QuantType::w4a8_dynamic : QuantType::w8a8_dynamic;
      if (options_.scheme == Scheme::w8a8_static && name.find(".experts.") == std::string::npos)
        job.scheme.type = QuantType::w8a8;
      if (job.scheme.type == QuantType::w4a8_dynamic && job.rows % 2 != 0)
        fail(name, cat("an odd number of rows (", job.rows, ") cannot be packed in pairs"));
    }
    if (job.shape.size() == 2) ++report_.types[weights::name_of(job.scheme.type)];
    jobs_.push_back(std::move(job));
  }

  bool has_block_scales(const TensorView& tensor) const {
    return tensor.type == StorageType::fp8_e4m3 && checkpoint_->contains(tensor.name + "_scale_inv");
  }
  static std::string base_of(const Job& job) { return job.name.substr(0, job.name.rfind(".weight")); }
  bool is_bias_of_quantized(const std::string& name) const {
    if (!name.ends_with(".bias")) return false;
    const std::string weight = name.substr(0, name.size() - 4) + "weight";
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [&](const Job& job) { return job.name == weight && job.scheme.type != QuantType::plain; });
  }

  void choose_group() {
    if (options_.scheme != Scheme::w4a8_group) return;
    for (const int group : {256, 128, 64, 32}) {
      const bool fits = std::all_of(jobs_.begin(), jobs_.end(), [&](const Job& job) {
        return job.scheme.type != QuantType::w4a8_dynamic || job.columns % group == 0;
      });
      if (!fits) continue;
      for (Job& job : jobs_)
        if (job.scheme.type == QuantType::w4a8_dynamic) job.scheme.group = group;
      report_.group = group;
      return;
    }
    throw Error(cat(options_.source, ": no group of 256, 128, 64 or 32 columns divides all its matrices; use w4a8"));
  }

  std::shared_ptr<const device::WeightSource> source_of(const Job& job) const {
    if (!has_block_scales(job.source))
      return weights::make_weight_source(checkpoint_, job.source.name, weights::ReadAs::exact);
    return weights::make_block_fp8_source(checkpoint_, job.source.name, job.source.name + "_scale_inv", fp8_.block_rows,
                                          fp8_.block_columns, weights::ReadAs::exact);
  }

  /// For floats that are copied as they are.
  void check_finite(const Job& job) {
    const auto source = source_of(job);
    std::atomic<bool> finite{true};
    in_parallel(team_, job.rows, [&](int64_t first, int64_t count) {
      std::vector<float> row(static_cast<size_t>(job.columns));
      for (int64_t i = first; i < first + count && finite; ++i) {
        source->read_f32(job.first_row + i, 1, row.data());
        if (!all_finite(row.data(), job.columns)) finite = false;
      }
    });
    if (!finite) fail_infinite(job.source.name);
  }
  [[noreturn]] void fail_infinite(const std::string& name) const {
    fail(name, "holds a number that is not finite; the checkpoint is damaged");
  }

  FloatMatrix read(const Job& job) {
    FloatMatrix matrix{job.rows, job.columns, std::vector<float>(static_cast<size_t>(job.rows * job.columns))};
    const auto source = source_of(job);
    std::atomic<bool> finite{true};
    in_parallel(team_, job.rows, [&](int64_t first, int64_t count) {
      source->read_f32(job.first_row + first, count, matrix.row(first));
      if (!all_finite(matrix.row(first), count * job.columns)) finite = false;
    });
    if (!finite) fail_infinite(job.source.name);
    if (quarot_) quarot_->fold(job.name, &matrix, team_);
    return matrix;
  }

  std::vector<float> bias_of(const Job& job) const {
    const std::string name = base_of(job) + ".bias";
    if (!checkpoint_->contains(name)) return {};
    const auto source = weights::make_weight_source(checkpoint_, name, weights::ReadAs::exact);
    if (source->rows() * source->columns() != job.rows) fail(name, cat("must have ", job.rows, " elements"));
    std::vector<float> bias(static_cast<size_t>(job.rows));
    source->read_f32(0, source->rows(), bias.data());
    if (!all_finite(bias.data(), job.rows)) fail_infinite(name);
    return bias;
  }

  device::ValueRange range_of(const Job& job) const {
    if (job.scheme.type != QuantType::w8a8) return {};
    const auto at = ranges_.find(job.name);
    if (at == ranges_.end()) fail(job.name, "calibration did not reach this linear; its input is unknown");
    if (!std::isfinite(at->second.low) || !std::isfinite(at->second.high))
      fail(job.name, "its inputs in calibration are not finite; this text does not go with this model");
    return at->second;
  }

  void write_weights(const std::string& folder, Progress& progress) {
    std::vector<TensorPlan> all;
    uint64_t total = 0;
    for (const Job& job : jobs_) {
      all.insert(all.end(), job.tensors.begin(), job.tensors.end());
      total += job.source.bytes.size() / std::max<uint64_t>(1, static_cast<uint64_t>(job.source.rows())) *
               static_cast<uint64_t>(job.rows);
    }
    for (const TensorPlan& tensor : all) report_.target_bytes += tensor.bytes();
    ShardWriter writer(folder, options_.only_rotate ? "model" : "quant_model_weights", std::move(all),
                       options_.shard_bytes);
    report_.shards = writer.shards();
    progress.begin(options_.only_rotate ? "rotating" : "quantizing", total);
    for (const Job& job : jobs_) {
      const uint64_t bytes = job.source.bytes.size() / std::max<uint64_t>(1, static_cast<uint64_t>(job.source.rows())) *
                             static_cast<uint64_t>(job.rows);
      report_.source_bytes += bytes;
      if (job.scheme.type != QuantType::plain) {
        const QuantizedMatrix result =
            quantize_matrix(base_of(job), job.scheme, read(job), bias_of(job), range_of(job), team_);
        for (const std::string& data : result.data) writer.write(data);
        QuantizeReport::Layer& layer = report_.layers[layer_of(job.name)];
        ++layer.matrices;
        layer.error += result.error;
        layer.size += result.size;
      } else if (is_float(job.source.type) && (quarot_ || job.tensors[0].dtype != dtype_of(job.source.type))) {
        writer.write(encoded(read(job).values, job.tensors[0].dtype));
      } else if (has_block_scales(job.source)) {
        writer.write(encoded(read(job).values, "BF16"));
      } else {
        if (is_float(job.source.type)) check_finite(job);
        writer.write(
            {reinterpret_cast<const char*>(job.source.bytes.data()) +
                 static_cast<uint64_t>(job.first_row) * (bytes / static_cast<uint64_t>(std::max<int64_t>(1, job.rows))),
             bytes});
      }
      checkpoint_->drop_pages(job.source.bytes);
      progress.advance(bytes);
    }
    writer.finish();
    progress.end();
  }

  void write_description(const std::string& folder) const {
    std::string text = "{\n";
    for (const Job& job : jobs_)
      for (const TensorPlan& tensor : job.tensors)
        text += cat("  ", json_string(tensor.name), ": ", json_string(weights::name_of(job.scheme.type)), ",\n");
    // A W4A8 model calls itself W8A8_DYNAMIC, as the vendor's tool has it.
    const QuantType type = options_.scheme == Scheme::w8a8_static ? QuantType::w8a8 : QuantType::w8a8_dynamic;
    text += cat("  \"version\": \"1.0.0\",\n  \"model_quant_type\": ", json_string(weights::name_of(type)),
                ",\n  \"group_size\": ", report_.group, ",\n  \"metadata\": {},\n  \"optional\": ");
    text += quarot_ ? "{\n    \"quarot\": {\n      \"rotation_map\": {\n        \"global_rotation\": "
                      "\"optional/quarot.safetensors\"\n      }\n    }\n  }\n}\n"
                    : "{}\n}\n";
    write_file(folder + "/quant_model_description.json", text);
  }

  void write_config(const std::string& folder) const {
    const weights::MappedFile file(keys_.path());
    Json root = parse_json(keys_.path(), {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
    const auto remove = [](Json& object, const char* key) {
      std::erase_if(object.object, [&](const JsonMember& member) { return member.first == key; });
    };
    // Embeddings are untied; there is no draft head any more.
    const auto adapt = [&](Json& object) {
      for (JsonMember& member : object.object) {
        const bool is_switch =
            member.first == "tie_word_embeddings" || (report_.left_out != 0 && member.first == "use_mtp");
        if (is_switch) member.second.boolean = false;
        if (report_.left_out != 0 && (member.first == "mtp_num_hidden_layers" || member.first == "num_mtp_modules"))
          member.second.integer = 0;
      }
    };
    remove(root, "quantization_config");
    if (quarot_) {
      adapt(root);
      if (root.find("tie_word_embeddings") == nullptr) {
        Json no;
        no.kind = Json::Kind::boolean;
        root.object.push_back({"tie_word_embeddings", no});
      }
    }
    for (JsonMember& member : root.object) {
      if (member.first != "text_config") continue;
      remove(member.second, "quantization_config");
      if (quarot_) adapt(member.second);
    }
    write_file(folder + "/config.json", json_text(root) + "\n");
  }

  void copy_files(const fs::path& folder) const {
    for (const auto& entry : fs::directory_iterator(options_.source)) {
      const std::string name = entry.path().filename().string();
      const bool wanted = name.ends_with(".json") || name.ends_with(".jinja") || name.ends_with(".py") ||
                          name.ends_with(".txt") || name.ends_with(".model") || name.ends_with(".tiktoken");
      if (!entry.is_regular_file() || !wanted || name == "config.json" || name.ends_with(".index.json")) continue;
      fs::copy_file(entry.path(), folder / name);
    }
  }

  static void write_rotation(const Rotation& rotation, const fs::path& folder) {
    fs::create_directories(folder / "optional");
    const int64_t size = rotation.size();
    const TensorPlan plan{"global_rotation", "F32", {size, size}};
    std::string header = cat("{\"global_rotation\":{\"dtype\":\"F32\",\"shape\":[", size, ",", size,
                             "],\"data_offsets\":[0,", plan.bytes(), "]}}");
    header.append((8 - header.size() % 8) % 8, ' ');
    std::string bytes;
    for (int byte = 0; byte < 8; ++byte)
      bytes.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * byte) & 0xff));
    write_file((folder / "optional" / "quarot.safetensors").string(),
               bytes + header + encoded(rotation.matrix(), "F32"));
  }

  QuantizeOptions options_;
  const InputRanges& ranges_;
  model::HfConfig keys_;
  model::ModelConfig config_;
  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  ComputeTeam team_;
  model::HfQuantization fp8_;
  weights::QuantRecipe recipe_ = weights::QuantRecipe::all_linear;
  std::optional<QuaRot> quarot_;
  std::vector<Job> jobs_;
  QuantizeReport report_;
};

}  // namespace

int64_t layer_of(const std::string& tensor) {
  const size_t at = tensor.find("layers.");
  int64_t layer = -1;
  if (at != std::string::npos) std::from_chars(tensor.data() + at + 7, tensor.data() + tensor.size(), layer);
  return tensor.starts_with("mtp.") ? -1 : layer;
}

std::string new_folder(const std::string& name) {
  if (name.empty()) throw Error("the folder to write has an empty name; name a new folder");
  std::string path = fs::path(name).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  // A link that leads nowhere is taken, too.
  if (fs::exists(fs::symlink_status(path))) throw Error(cat(path, ": exists already; name a new folder"));
  return path;
}

InputRanges calibrate(const QuantizeOptions& options, const std::vector<std::vector<int32_t>>& sequences,
                      Progress& progress) {
  if (!options.quarot) return measure_input_ranges(options.source, sequences, options.threads, progress);
  const PartialFolder beside(options.target + ".rotated");
  QuantizeOptions rotation = options;
  rotation.only_rotate = true;
  rotation.target = (beside.path() / "model").string();
  quantize_folder(rotation, {}, progress);
  return measure_input_ranges(rotation.target, sequences, options.threads, progress);
}

QuantizeReport quantize_folder(const QuantizeOptions& options, const InputRanges& ranges, Progress& progress) {
  return FolderQuantizer(options, ranges).run(progress);
}

}  // namespace gristmill::quantize
