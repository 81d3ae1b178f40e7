#pragma once
#include <cstddef>
#include <span>

namespace gristmill::device {

/// Joins the ranks of one replica. Calls are made by the back end at phase boundaries. The sums are taken over 8
/// canonical segments by a fixed tree, so that every number of ranks that divides 8 gives the same bits.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
};

}  // namespace gristmill::device
