#include "engine/state_slots.h"

#include <gtest/gtest.h>

namespace gristmill::engine {
namespace {

BlockHash name(uint8_t value) {
  BlockHash hash{};
  hash[0] = value;
  return hash;
}

TEST(StateSlots, SnapshotsAndRunningSequencesHaveSlotsOfTheirOwn) {
  StateSlots slots(2, 2);
  const int32_t a = slots.acquire(), b = slots.acquire();
  EXPECT_NE(a, b);
  const auto snapshot = slots.make_snapshot(name(1));
  ASSERT_TRUE(snapshot);
  EXPECT_GE(*snapshot, 2);
  slots.release(a);
  EXPECT_EQ(slots.acquire(), a);
}

TEST(StateSlots, TheLeastRecentlyUsedSnapshotMakesRoom) {
  StateSlots slots(1, 2);
  slots.make_snapshot(name(1));
  slots.make_snapshot(name(2));
  slots.unpin(*slots.pin(name(1)));
  slots.make_snapshot(name(3));
  EXPECT_TRUE(slots.contains(name(1)));
  EXPECT_FALSE(slots.contains(name(2)));
  EXPECT_EQ(slots.snapshots(), 2);
}

TEST(StateSlots, APinnedSnapshotStays) {
  StateSlots slots(1, 1);
  slots.make_snapshot(name(1));
  const auto pinned = slots.pin(name(1));
  EXPECT_FALSE(slots.make_snapshot(name(2)));
  slots.forget(name(1));
  EXPECT_TRUE(slots.contains(name(1)));
  slots.unpin(*pinned);
  EXPECT_TRUE(slots.make_snapshot(name(2)));
  EXPECT_FALSE(slots.contains(name(1)));
}

TEST(StateSlots, ASecondSnapshotOfTheSameNameIsNotTaken) {
  StateSlots slots(1, 4);
  EXPECT_TRUE(slots.make_snapshot(name(1)));
  EXPECT_FALSE(slots.make_snapshot(name(1)));
  slots.forget_all();
  EXPECT_EQ(slots.snapshots(), 0);
}

}  // namespace
}  // namespace gristmill::engine
