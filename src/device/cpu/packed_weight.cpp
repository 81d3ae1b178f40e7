#include "device/cpu/packed_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/float8.h"
#include "base/half.h"
#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {
namespace {

constexpr float kE4m3Factor = 256;

constexpr int kSteps = kGroup / 4;  // a step is the 4 inputs that one 32-bit lane holds

uint16_t* block_scales(std::byte* block, const PackedWeight& form) {
  const int code_bytes = form.cls == ComputeClass::i4_group ? kGroup / 2 : kGroup;
  return reinterpret_cast<uint16_t*>(block + code_bytes * form.panel);
}

/// Four codes of a step at a time, as they lie in memory.
uint32_t four_of(const uint8_t* codes) {
  uint32_t four;
  std::memcpy(&four, codes, sizeof four);
  return four;
}

void pack_codes(const PackedWeight& form, const uint8_t* codes, int column, std::byte* block) {
  std::byte* to = block + column * 4;
  const int stride = form.panel * 4;
  if (form.cls == ComputeClass::i8_group || form.cls == ComputeClass::i8_channel) {
    const uint32_t flip = form.biased ? 0x80808080u : 0;
    for (int step = 0; step < kSteps; ++step, to += stride) {
      const uint32_t four = four_of(codes + step * 4) ^ flip;
      std::memcpy(to, &four, sizeof four);
    }
    return;
  }
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  for (int step = 0; step < kSteps / 2; ++step, to += stride) {
    const uint32_t low = four_of(codes + step * 4), high = four_of(codes + (step + kSteps / 2) * 4);
    const uint32_t four = (low & kLow) | (high & kLow) << 4;
    std::memcpy(to, &four, sizeof four);
  }
}

void pack_coded(const WeightSource& source, const PackedWeight& form, int64_t first_row, int64_t rows, std::byte* to) {
  const int64_t groups = form.inputs / kGroup;
  const auto codes = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(rows * form.inputs));
  std::vector<uint16_t> scales(static_cast<size_t>(rows * groups)), mins(form.has_min ? scales.size() : 0);
  source.read_codes(first_row, rows, {codes.get(), scales.data(), form.has_min ? mins.data() : nullptr});
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* const panel = to + static_cast<size_t>(row / form.panel) * form.panel_stride;
    const int column = static_cast<int>(row % form.panel);
    for (int64_t group = 0; group < groups; ++group) {
      std::byte* const block = panel + static_cast<size_t>(group) * form.block_bytes;
      pack_codes(form, codes.get() + row * form.inputs + group * kGroup, column, block);
      uint16_t* const table = block_scales(block, form);
      table[column] = scales[static_cast<size_t>(row * groups + group)];
      if (form.has_min) table[form.panel + column] = mins[static_cast<size_t>(row * groups + group)];
    }
  }
}

void pack_channel(const WeightSource& source, const PackedWeight& form, int64_t first_row, int64_t rows,
                  std::byte* to) {
  const int64_t groups = form.scale_groups();
  const bool nibbles = form.cls == ComputeClass::i4_channel;
  const auto codes = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(rows * form.inputs));
  std::vector<float> scales(static_cast<size_t>(rows * groups));
  std::vector<int32_t> addends(static_cast<size_t>(rows));
  source.read_codes(first_row, rows,
                    {codes.get(), nullptr, nullptr, scales.data(), form.input ? addends.data() : nullptr});
  for (int64_t row = 0; row < rows; ++row) {
    std::byte* const panel = to + static_cast<size_t>(row / form.panel) * form.panel_stride;
    const int column = static_cast<int>(row % form.panel);
    const uint8_t* const from = codes.get() + row * form.inputs;
    int32_t addend = addends[static_cast<size_t>(row)];
    for (int64_t block = 0; block < form.blocks(); ++block) {
      uint8_t padded[kGroup] = {};
      std::copy_n(from + block * kGroup, std::min<int64_t>(kGroup, form.inputs - block * kGroup), padded);
      for (uint8_t& code : padded) {
        if (nibbles) {
          code = static_cast<uint8_t>(code + 8) & 0x0f;
        } else if (form.complements) {
          addend += std::max(0, -static_cast<int8_t>(code));
        }
      }
      pack_codes(form, padded, column, panel + static_cast<size_t>(block) * form.block_bytes);
    }
    auto* const table = const_cast<float*>(form.scales(panel));
    for (int64_t group = 0; group < groups; ++group)
      table[group * form.panel + column] = scales[static_cast<size_t>(row * groups + group)];
    if (form.group == 0) const_cast<int32_t*>(form.addends(panel))[column] = addend;
  }
}

/// Units of `inputs_each` inputs lie side by side for the outputs of a panel. In strips of inputs, so that what is
/// written to stays in the nearest cache.
template <int inputs_each, class Element>
void pack_floats(const PackedWeight& form, const Element* values, int64_t rows, std::byte* to) {
  constexpr int64_t kStrip = 128;
  for (int64_t first = 0; first < rows; first += form.panel) {
    auto* const panel = reinterpret_cast<Element*>(to + static_cast<size_t>(first / form.panel) * form.panel_stride);
    const int64_t columns = std::min<int64_t>(form.panel, rows - first);
    for (int64_t begin = 0; begin < form.inputs; begin += kStrip) {
      const int64_t end = std::min(begin + kStrip, form.inputs), whole = end / inputs_each * inputs_each;
      for (int64_t column = 0; column < columns; ++column) {
        const Element* const from = values + (first + column) * form.inputs;
        const auto place = [&](int64_t k) { return panel + k * form.panel + column * inputs_each; };
        for (int64_t k = begin; k < whole; k += inputs_each)
          std::memcpy(place(k), from + k, inputs_each * sizeof *from);
        if (whole < end) std::memcpy(place(whole), from + whole, sizeof *from);
      }
    }
  }
}

void pack_bytes(const WeightSource& source, const PackedWeight& form, int64_t first_row, int64_t rows, std::byte* to) {
  const int64_t groups = form.scale_groups();
  const float factor = form.cls == ComputeClass::f8_float ? kE4m3Factor : 1.0f;
  std::vector<uint8_t> codes(static_cast<size_t>(rows * form.inputs));
  std::vector<float> scales(static_cast<size_t>(rows * groups));
  source.read_codes(first_row, rows, {codes.data(), nullptr, nullptr, scales.data()});
  pack_floats<1>(form, codes.data(), rows, to);
  for (int64_t row = 0; row < rows; ++row) {
    auto* const table = const_cast<float*>(form.scales(to + static_cast<size_t>(row / form.panel) * form.panel_stride));
    for (int64_t group = 0; group < groups; ++group)
      table[group * form.panel + row % form.panel] = scales[static_cast<size_t>(row * groups + group)] * factor;
  }
}

}  // namespace

PackedWeight packed_form(const WeightSource& source, const Kernels& kernels, bool exact) {
  const Encoding& encoding = source.encoding();
  PackedWeight form;
  form.outputs = source.rows();
  form.inputs = source.columns();
  if (exact && encoding.input)
    throw Error(cat(source.name(), ": statically quantized, but float32 weights are asked for; read it exactly"));
  const bool coded = encoding.cls == ComputeClass::i4_group || encoding.cls == ComputeClass::i8_group;
  if (exact || (coded && (encoding.group != kGroup || form.inputs % kGroup != 0))) {
    form.cls = ComputeClass::f32;
  } else {
    form.cls = encoding.cls;
  }
  if (form.coded()) {
    form.has_min = encoding.has_min;
    form.zero = form.cls == ComputeClass::i4_group ? static_cast<float>(encoding.zero) : 0.0f;
    form.panel = kernels.coded_panel;
    form.biased = form.cls == ComputeClass::i8_group && kernels.biased_i8;
    const size_t code_bytes = form.cls == ComputeClass::i4_group ? kGroup / 2 : kGroup;
    form.block_bytes = static_cast<size_t>(form.panel) * (code_bytes + (form.has_min ? 4 : 2));
    form.panel_stride = form.panel_bytes = static_cast<size_t>(form.inputs / kGroup) * form.block_bytes;
    return form;
  }
  if (form.channel()) {
    form.group = encoding.group;
    form.input = encoding.input;
    form.panel = kernels.coded_panel;
    form.biased = form.cls == ComputeClass::i8_channel && kernels.biased_i8;
    form.complements = form.cls == ComputeClass::i8_channel && kernels.complements_i8 && form.group == 0;
    form.block_bytes = static_cast<size_t>(form.panel) * (form.cls == ComputeClass::i4_channel ? kGroup / 2 : kGroup);
    const auto words = static_cast<size_t>(form.scale_groups() + (form.group == 0 ? 1 : 0));
    form.panel_stride = form.panel_bytes =
        static_cast<size_t>(form.blocks()) * form.block_bytes + words * static_cast<size_t>(form.panel) * 4;
    return form;
  }
  if (form.bytes_of_float()) {
    form.group = encoding.group;
    form.panel_stride = form.panel_bytes =
        (static_cast<size_t>((form.inputs + 1) / 2 * 2) + static_cast<size_t>(form.scale_groups()) * sizeof(float)) *
        kFloatPanel;
    return form;
  }
  const size_t element = form.cls == ComputeClass::f32 ? 4 : 2;
  const int64_t inputs = form.cls == ComputeClass::bf16 ? (form.inputs + 1) / 2 * 2 : form.inputs;
  form.panel_stride = form.panel_bytes = static_cast<size_t>(inputs) * kFloatPanel * element;
  return form;
}

void pack_panels(const WeightSource& source, const PackedWeight& form, int64_t first, int64_t count, std::byte* data) {
  const int64_t first_row = first * form.panel;
  const int64_t rows = std::min(count * form.panel, form.outputs - first_row);
  std::byte* const to = data + static_cast<size_t>(first) * form.panel_stride;
  // Padding is zeros: outputs that the last panel lacks, and the input that an odd number of bf16 inputs lacks.
  const bool odd = form.cls == ComputeClass::bf16 && form.inputs % 2 != 0;
  for (int64_t i = odd ? 0 : rows / form.panel; i < count; ++i)
    std::memset(to + static_cast<size_t>(i) * form.panel_stride, 0, form.panel_bytes);
  if (form.coded()) {
    pack_coded(source, form, first_row, rows, to);
  } else if (form.channel()) {
    pack_channel(source, form, first_row, rows, to);
  } else if (form.bytes_of_float()) {
    pack_bytes(source, form, first_row, rows, to);
  } else if (form.cls == ComputeClass::f32) {
    const auto values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(rows * form.inputs));
    source.read_f32(first_row, rows, values.get());
    pack_floats<1>(form, values.get(), rows, to);
  } else {
    const auto values = std::make_unique_for_overwrite<uint16_t[]>(static_cast<size_t>(rows * form.inputs));
    source.read_16(first_row, rows, values.get());
    if (form.cls == ComputeClass::bf16) {
      pack_floats<2>(form, values.get(), rows, to);
    } else {
      pack_floats<1>(form, values.get(), rows, to);
    }
  }
}

void read_packed_row(const PackedWeight& weight, int64_t row, float* out) {
  const std::byte* const panel = weight.panel_data(row / weight.panel);
  const int column = static_cast<int>(row % weight.panel);
  if (weight.channel()) {
    const float divisor = weight.input ? weight.input->scale : 1.0f;
    for (int64_t k = 0; k < weight.inputs; ++k)
      out[k] = weight.scales(panel)[(weight.group == 0 ? 0 : k / weight.group) * weight.panel + column] / divisor *
               static_cast<float>(channel_code(weight, panel, column, k));
    return;
  }
  if (!weight.coded()) {
    for (int64_t k = 0; k < weight.inputs; ++k) {
      const int64_t plain = k * weight.panel + column;
      switch (weight.cls) {
        case ComputeClass::f32:
          out[k] = reinterpret_cast<const float*>(panel)[plain];
          break;
        case ComputeClass::f16:
          out[k] = f16_to_f32(reinterpret_cast<const uint16_t*>(panel)[plain]);
          break;
        case ComputeClass::f8_float:
          out[k] =
              fp8_e4m3_to_f32(static_cast<uint8_t>(panel[plain])) *
              (weight.scales(panel)[(weight.group == 0 ? 0 : k / weight.group) * weight.panel + column] / kE4m3Factor);
          break;
        case ComputeClass::i8_float:
          out[k] = static_cast<float>(static_cast<int8_t>(panel[plain])) * weight.scales(panel)[column];
          break;
        default:
          out[k] = bf16_to_f32(reinterpret_cast<const uint16_t*>(panel)[((k / 2) * weight.panel + column) * 2 + k % 2]);
      }
    }
    return;
  }
  const bool nibbles = weight.cls == ComputeClass::i4_group;
  const uint8_t flip = weight.biased ? 0x80 : 0;
  for (int64_t group = 0; group < weight.inputs / kGroup; ++group) {
    const std::byte* const block = panel + static_cast<size_t>(group) * weight.block_bytes;
    const auto* const bytes = reinterpret_cast<const uint8_t*>(block);
    const auto* const scales =
        reinterpret_cast<const uint16_t*>(block + (nibbles ? kGroup / 2 : kGroup) * weight.panel);
    const float scale = f16_to_f32(scales[column]);
    const float min = weight.has_min ? f16_to_f32(scales[weight.panel + column]) : 0.0f;
    const float offset = std::fma(-weight.zero, scale, min);
    for (int k = 0; k < kGroup; ++k) {
      const int step = nibbles ? k / 4 % (kSteps / 2) : k / 4;
      const uint8_t byte = bytes[(step * weight.panel + column) * 4 + k % 4];
      const int code = !nibbles ? static_cast<int8_t>(byte ^ flip) : k < kGroup / 2 ? byte & 0x0f : byte >> 4;
      out[group * kGroup + k] = std::fma(scale, static_cast<float>(code), offset);
    }
  }
}

}  // namespace gristmill::device::cpu
