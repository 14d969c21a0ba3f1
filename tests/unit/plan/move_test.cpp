#include "baton/plan/move.h"

#include <gtest/gtest.h>

#include <tuple>

namespace baton::plan {
namespace {

/// What each of four members of a move of 12 elements sends and receives, counted by hand.
TEST(Move, WhatAMemberSendsAndReceivesFollowsFromTheTable) {
  for (const auto& [move, rank, sent, received] : {
           std::tuple{Move::all_reduce, 0, 9 + 9, 9 + 9},  // 9 to those who sum them, its 3 sums to three others
           std::tuple{Move::all_reduce, 3, 9 + 9, 9 + 9},
           std::tuple{Move::broadcast, 0, 36, 0},
           std::tuple{Move::broadcast, 2, 0, 12},
           std::tuple{Move::reduce, 0, 0, 36},
           std::tuple{Move::reduce, 2, 12, 0},
           std::tuple{Move::reduce_scatter, 1, 9, 9},
           std::tuple{Move::all_gather, 1, 9, 9},
       }) {
    const Moved moved = moved_by(move, owned(move, 12, rank, 4), 12, 4);
    EXPECT_EQ(moved.sent, sent) << to_text(move) << ", rank " << rank;
    EXPECT_EQ(moved.received, received) << to_text(move) << ", rank " << rank;
  }
  EXPECT_EQ(moved_by(Move::copy, owned(Move::copy, 12, 0, 2), 12, 2).sent, 12);
  EXPECT_EQ(moved_by(Move::copy, owned(Move::copy, 12, 1, 2), 12, 2).received, 12);
}

TEST(Move, WhatIsSentIsReceived) {
  for (const MoveRule& rule : move_rules) {
    for (std::int64_t size = 2; size <= 7; ++size) {
      std::int64_t balance = 0;
      for (std::int64_t rank = 0; rank < size; ++rank) {
        const Moved moved = moved_by(rule.move, owned(rule.move, 100, rank, size), 100, size);
        balance += moved.sent - moved.received;
      }
      EXPECT_EQ(balance, 0) << rule.name;
    }
  }
}

TEST(Move, BandwidthIsCountedAsNcclTestsDo) {
  EXPECT_DOUBLE_EQ(bus_factor(Move::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Move::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Move::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Move::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Move::copy, 2), 1);
}

}  // namespace
}  // namespace baton::plan
