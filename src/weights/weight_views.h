#pragma once
// Weights made of other weights, read through to the file.
#include <memory>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace gristmill::weights {

/// Rows `rows[i]` of `base`, in that order; any of them may be left out or named again. Throws Error naming the weight
/// for a row that is not there.
std::shared_ptr<const device::WeightSource> select_rows(std::string name,
                                                        std::shared_ptr<const device::WeightSource> base,
                                                        std::vector<int32_t> rows);

/// Elements `elements[i]` of a vector, likewise.
std::shared_ptr<const device::WeightSource> select_elements(std::shared_ptr<const device::WeightSource> base,
                                                            std::vector<int32_t> elements);

/// Channel codes in another class and with other groups, where nothing is lost: i4_channel as i8_channel, a scale
/// shared by more columns as several equal ones. Throws Error naming the weight for anything else.
std::shared_ptr<const device::WeightSource> recode(std::shared_ptr<const device::WeightSource> base,
                                                   const device::Encoding& encoding);

/// All rows of the first, then all of the second, and so on: one matrix per expert makes the matrix of all experts.
/// Sources of different encodings are read as float32. Throws Error naming the one whose columns differ.
std::shared_ptr<const device::WeightSource> concatenate_rows(
    std::string name, std::vector<std::shared_ptr<const device::WeightSource>> parts);

/// 1 + w in float32, for norms whose stored weight is centred on zero.
std::shared_ptr<const device::WeightSource> add_one(std::shared_ptr<const device::WeightSource> base);

/// FP8 blocks with a float scale each: value (r, c) = fp8 * scale[r / block_rows][c / block_columns], the last blocks
/// cropped. `compact` rounds the product to bfloat16, `exact` keeps it in float32. Throws Error naming tensor and
/// shapes that do not fit.
std::shared_ptr<const device::WeightSource> make_block_fp8_source(std::shared_ptr<const Checkpoint> checkpoint,
                                                                  const std::string& name,
                                                                  const std::string& scale_name, int64_t block_rows,
                                                                  int64_t block_columns, ReadAs read_as);

}  // namespace gristmill::weights
