#pragma once
// The folder in which packed weights are kept between starts, a file each (device/cpu/weight_cache_file.h), named by
// its key. A file appears whole or not at all: it is written under another name beside its place, synchronized and
// renamed. Who writes holds a lock on that name, so that two processes do not write the same weights, and what a killed
// writer left behind is known by the lock that is gone.
#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "device/backend.h"
#include "device/cpu/weight_cache_file.h"

namespace gristmill::device::cpu {

/// The weights of this key, their header checked, or null. A file that is not what its name says is removed, and
/// the log tells why. Marks the file as used.
std::unique_ptr<CachedWeights> find_cached_weights(const WeightCacheOptions& options, const std::string& key,
                                                   size_t payload_bytes);

/// Removes a file whose contents were found damaged, with a line in the log.
void drop_cached_weights(const std::string& path, const std::string& why);

/// Keeps the weights; gives up when `stop` is set. Whatever prevents it is a line in the log and no error: a folder
/// that cannot be written, a disk without room, another process that is writing them.
void keep_weights(const WeightCacheOptions& options, const std::string& key, std::span<const std::byte> weights,
                  const std::atomic<bool>& stop);

/// Lets the calling thread stand back: a little of busy processors, of disks what others leave.
void run_in_background();

}  // namespace gristmill::device::cpu
