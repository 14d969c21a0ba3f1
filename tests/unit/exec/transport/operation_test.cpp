#include "baton/exec/transport/operation.h"

#include <gtest/gtest.h>

#include "baton/base/narrow.h"

namespace baton::exec {
namespace {

constexpr std::size_t count = 1000;  // several strips, and a part of one

using Floats = std::vector<float>;

std::byte* at(Floats& values) { return reinterpret_cast<std::byte*>(values.data()); }

Operation operation(Operation::Function kind, std::vector<std::byte*> from, std::vector<std::byte*> to, double rate = 0) {
  return {kind, DType::f32, static_cast<std::int64_t>(count), std::move(from), std::move(to), rate};
}

Floats filled(float value) { return Floats(count, value); }

TEST(Operation, CopiesTheOneToAll) {
  Floats from = filled(3);
  from.back() = 4;
  Floats first = filled(0);
  Floats second = filled(0);
  EXPECT_EQ(operation(Operation::Function::copy, {at(from)}, {at(first), at(second)}).run(), Rounding{});
  EXPECT_EQ(first, from);
  EXPECT_EQ(second, from);
}

TEST(Operation, SumsInTheOrderOfTheMembersAlsoIntoThemselves) {
  Floats large = filled(1e8F);
  Floats small = filled(1);
  Floats opposite = filled(-1e8F);
  Floats total = filled(9);
  operation(Operation::Function::sum, {at(large), at(small), at(opposite)}, {at(total)}).run();
  EXPECT_EQ(total, filled(0)) << "what is small vanishes when added to what is large";
  operation(Operation::Function::sum, {at(large), at(opposite), at(small)}, {at(large), at(opposite), at(small)}).run();
  EXPECT_EQ(large, filled(1));
  EXPECT_EQ(opposite, filled(1));
  EXPECT_EQ(small, filled(1));
}

TEST(Operation, TwoMembersSumLikeMore) {
  Floats first = filled(1);
  Floats second = filled(2);
  operation(Operation::Function::sum, {at(first), at(second)}, {at(first)}).run();
  EXPECT_EQ(first, filled(3));
  EXPECT_EQ(second, filled(2));
  operation(Operation::Function::sum, {at(first), at(second)}, {at(first), at(second)}).run();
  EXPECT_EQ(first, filled(5));
  EXPECT_EQ(second, filled(5));
  Floats apart = filled(0);
  operation(Operation::Function::sum, {at(first), at(second)}, {at(apart)}).run();
  EXPECT_EQ(apart, filled(10));
}

TEST(Operation, AddsTheSumToWhatIsThere) {
  Floats first = filled(1);
  Floats second = filled(2);
  Floats total = filled(10);
  operation(Operation::Function::add, {at(first), at(second)}, {at(total)}).run();
  EXPECT_EQ(total, filled(13));
}

TEST(Operation, AppliesTheSumAtARateToAllParameters) {
  for (const std::size_t members : {1U, 2U, 3U}) {
    std::vector<Floats> gradients(members, filled(2));
    std::vector<Floats> weights(2, filled(10));
    std::vector<std::byte*> from;
    for (Floats& gradient : gradients) {
      from.push_back(at(gradient));
    }
    operation(Operation::Function::apply, from, {at(weights[0]), at(weights[1])}, 0.5).run();
    EXPECT_EQ(weights[0], filled(10 - static_cast<float>(members)));
    EXPECT_EQ(weights[1], weights[0]);
    EXPECT_EQ(gradients[0], filled(2));
  }
}

TEST(Operation, DoublesAreSummedAsDoubles) {
  std::vector<double> first(count, 1e16);
  std::vector<double> second(count, 2);
  const auto memory = [](std::vector<double>& values) { return reinterpret_cast<std::byte*>(values.data()); };
  Operation{
      Operation::Function::sum, DType::f64, static_cast<std::int64_t>(count), {memory(first), memory(second)}, {memory(second)}}
      .run();
  EXPECT_EQ(second, std::vector<double>(count, 1e16 + 2));
}

TEST(Operation, SumsOf16BitTypesAreTakenInFloatAndRoundedOnce) {
  const auto narrow_list = [](float value) { return std::vector<Bf16>(count, Bf16(value)); };
  const auto memory = [](std::vector<Bf16>& values) { return reinterpret_cast<std::byte*>(values.data()); };
  std::vector<Bf16> large = narrow_list(256);
  std::vector<Bf16> first = narrow_list(1);
  std::vector<Bf16> second = narrow_list(1);
  std::vector<Bf16> total = narrow_list(4);
  const auto run = [&](Operation::Function kind, std::vector<std::byte*> to) {
    return Operation{
        kind, DType::bf16, static_cast<std::int64_t>(count), {memory(large), memory(first), memory(second)}, std::move(to)}
        .run();
  };
  EXPECT_EQ(run(Operation::Function::add, {memory(total)}).values, static_cast<std::int64_t>(count));
  EXPECT_EQ(static_cast<float>(total[count - 1]), 262.0F);
  EXPECT_EQ(run(Operation::Function::sum, {memory(total), memory(first)}).values, static_cast<std::int64_t>(count));
  EXPECT_EQ(static_cast<float>(total[0]), 258.0F) << "rounded after each addition it would be 256";
  EXPECT_EQ(static_cast<float>(first[count - 1]), 258.0F);
}

}  // namespace
}  // namespace baton::exec
