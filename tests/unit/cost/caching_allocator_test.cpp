#include "baton/cost/caching_allocator.h"

#include <gtest/gtest.h>

namespace baton::cost {
namespace {

constexpr std::int64_t mib = 1 << 20;

TEST(CachingAllocator, TakesSegmentsBySizeAsPyTorchDoes) {
  CachingAllocator allocator(1 << 30);
  allocator.take(100, 0);
  EXPECT_EQ(allocator.reserved(), 2 * mib);
  EXPECT_EQ(allocator.used(), 512);
  allocator.take(3 * mib, 0);
  EXPECT_EQ(allocator.reserved(), 22 * mib);
  allocator.take(16 * mib, 0);
  EXPECT_EQ(allocator.reserved(), 22 * mib) << "the rest of the 20 MiB holds it";
  allocator.take(18 * mib + 1, 0);
  EXPECT_EQ(allocator.reserved(), 42 * mib);
}

TEST(CachingAllocator, AFreeBlockServesItsStreamOnlyAndIsJoinedWithItsNeighbours) {
  CachingAllocator allocator(1 << 30);
  const auto first = allocator.take(40 * mib, 0);
  allocator.give(first);
  allocator.take(40 * mib, 1);
  EXPECT_EQ(allocator.reserved(), 80 * mib);
  const auto left = allocator.take(20 * mib, 0);
  const auto right = allocator.take(20 * mib, 0);
  EXPECT_EQ(allocator.reserved(), 80 * mib);
  allocator.give(left);
  allocator.give(right);
  allocator.take(40 * mib, 0);
  EXPECT_EQ(allocator.reserved(), 80 * mib);
}

TEST(CachingAllocator, BlocksOfOneSegmentDoNotServeARequestThatOnlyTwoTogetherWouldHold) {
  CachingAllocator allocator(1 << 30);
  const auto one = allocator.take(40 * mib, 0);
  const auto other = allocator.take(40 * mib, 0);
  allocator.give(one);
  allocator.give(other);
  allocator.take(60 * mib, 0);
  EXPECT_EQ(allocator.reserved(), 140 * mib);
}

TEST(CachingAllocator, SegmentsThatAreFreeAreGivenBackBeforeTheDeviceIsFull) {
  CachingAllocator allocator(100 * mib);
  const auto one = allocator.take(40 * mib, 0);
  allocator.take(20 * mib, 0);
  allocator.give(one);
  allocator.take(60 * mib, 0);
  EXPECT_EQ(allocator.reserved(), 80 * mib);
  EXPECT_EQ(allocator.most_reserved(), 80 * mib);
}

}  // namespace
}  // namespace baton::cost
