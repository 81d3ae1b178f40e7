#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

namespace gristmill::testing {

/// A safetensors file in the making.
class SafetensorsBytes {
 public:
  SafetensorsBytes& add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
                        const std::string& data) {
    std::string dims;
    for (const int64_t dim : shape) dims += cat(dims.empty() ? "" : ",", dim);
    header_ += cat(header_.empty() ? "" : ",", "\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[", dims,
                   "],\"data_offsets\":[", data_.size(), ",", data_.size() + data.size(), "]}");
    data_ += data;
    return *this;
  }
  template <class T>
  SafetensorsBytes& add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
                        const std::vector<T>& values) {
    std::string data(values.size() * sizeof(T), '\0');
    if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
    return add(name, dtype, shape, data);
  }
  std::string bytes() const {
    const std::string header = "{" + header_ + "}";
    const uint64_t length = header.size();
    std::string all(sizeof length, '\0');
    std::memcpy(all.data(), &length, sizeof length);
    return all + header + data_;
  }

 private:
  std::string header_, data_;
};

}  // namespace gristmill::testing
