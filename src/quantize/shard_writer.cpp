#include "quantize/shard_writer.h"

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "quantize/json_text.h"

namespace gristmill::quantize {

uint64_t TensorPlan::bytes() const {
  uint64_t count = dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" ? 1
                   : dtype == "BF16" || dtype == "F16" || dtype == "I16"                   ? 2
                   : dtype == "I64" || dtype == "F64"                                      ? 8
                                                                                           : 4;
  for (const int64_t dim : shape) count *= static_cast<uint64_t>(dim);
  return count;
}

ShardWriter::ShardWriter(std::string folder, std::string stem, std::vector<TensorPlan> tensors, uint64_t limit)
    : folder_(std::move(folder)), stem_(std::move(stem)), tensors_(std::move(tensors)) {
  uint64_t size = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t bytes = tensors_[i].bytes();
    if (i == 0 || size + bytes > limit) {
      starts_.push_back(i);
      size = 0;
    }
    size += bytes;
  }
}

std::string ShardWriter::file_name(size_t shard) const {
  char number[32];
  std::snprintf(number, sizeof number, "-%05zu-of-%05zu", shard + 1, starts_.size());
  return cat(stem_, number, ".safetensors");
}

void ShardWriter::open(size_t shard) {
  const size_t end = shard + 1 < starts_.size() ? starts_[shard + 1] : tensors_.size();
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  uint64_t offset = 0;
  for (size_t i = starts_[shard]; i < end; ++i) {
    const TensorPlan& tensor = tensors_[i];
    std::string shape;
    for (const int64_t dim : tensor.shape) shape += cat(shape.empty() ? "" : ",", dim);
    header += cat(",", json_string(tensor.name), ":{\"dtype\":\"", tensor.dtype, "\",\"shape\":[", shape,
                  "],\"data_offsets\":[", offset, ",", offset + tensor.bytes(), "]}");
    offset += tensor.bytes();
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::string path = cat(folder_, "/", file_name(shard));
  file_.open(path, std::ios::binary | std::ios::trunc);
  const uint64_t length = header.size();
  for (int byte = 0; byte < 8; ++byte) file_.put(static_cast<char>(length >> (8 * byte) & 0xff));
  file_ << header;
  if (!file_) throw Error(cat(path, ": cannot be written; is the disk full?"));
}

void ShardWriter::close() {
  file_.close();
  if (!file_) throw Error(cat(folder_, "/", file_name(shard_), ": cannot be written; is the disk full?"));
}

void ShardWriter::write(std::string_view data) {
  const TensorPlan& tensor = tensors_.at(next_);
  if (data.size() != tensor.bytes())
    throw Error(cat(tensor.name, ": ", data.size(), " bytes were made of the ", tensor.bytes(), " planned"));
  if (!file_.is_open()) {
    open(shard_);
  } else if (shard_ + 1 < starts_.size() && next_ == starts_[shard_ + 1]) {
    close();
    open(++shard_);
  }
  file_.write(data.data(), static_cast<std::streamsize>(data.size()));
  if (!file_) throw Error(cat(folder_, "/", file_name(shard_), ": cannot be written; is the disk full?"));
  ++next_;
}

void ShardWriter::finish() {
  if (next_ != tensors_.size()) throw Error(cat(tensors_[next_].name, ": was planned but not written"));
  if (file_.is_open()) close();
  uint64_t total = 0;
  std::string map;
  size_t shard = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (shard + 1 < starts_.size() && i == starts_[shard + 1]) ++shard;
    total += tensors_[i].bytes();
    map += cat(i == 0 ? "" : ",\n", "    ", json_string(tensors_[i].name), ": ", json_string(file_name(shard)));
  }
  write_file(
      cat(folder_, "/", stem_, ".safetensors.index.json"),
      cat("{\n  \"metadata\": {\n    \"total_size\": ", total, "\n  },\n  \"weight_map\": {\n", map, "\n  }\n}\n"));
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw Error(cat(path, ": cannot be written"));
}

}  // namespace gristmill::quantize
