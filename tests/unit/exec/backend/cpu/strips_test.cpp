#include "baton/exec/backend/cpu/strips.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "baton/exec/backend/cpu/elementwise.h"
#include "baton/plan/plan.h"

namespace baton::exec::cpu {
namespace {

/// Not a multiple of a strip, nor of what a member of three takes.
constexpr std::int64_t count = 5003;

std::vector<float> numbers(int seed) {
  std::vector<float> list(static_cast<std::size_t>(count));
  std::uint32_t state = 12345U + static_cast<std::uint32_t>(seed);
  for (float& one : list) {
    state = state * 1664525U + 1013904223U;
    one = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-29F;
  }
  return list;
}

std::vector<std::byte> stored(const std::vector<float>& values, DType type) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  if (type == DType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    narrow(type, values.data(), bytes.data(), count);
  }
  return bytes;
}

std::vector<float> loaded(const std::vector<std::byte>& bytes, DType type) {
  std::vector<float> values(static_cast<std::size_t>(count));
  if (type == DType::f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    widen(type, bytes.data(), values.data(), count);
  }
  return values;
}

/// What the function makes of whole operands, rounded, and what the kernel of a team of `members` writes, one after the other.
void expect_same(StripFunction function, const op::Op& op, const std::vector<DType>& reads, const std::vector<DType>& writes,
                 int members) {
  plan::Draft draft;
  draft.devices = {"cpu:0"};
  plan::Task task{.action = plan::Compute{op}, .device = DeviceId(0), .labels = {}, .reads = {}, .writes = {}, .after = {}};
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::vector<float>> wide;
  const auto buffer = [&](DType type) {
    return draft.add({.device = DeviceId(0), .dtype = type, .shape = baton::Shape{count}, .content = {}, .label = "x"});
  };
  for (const DType type : reads) {
    task.reads.push_back(buffer(type));
    memory.push_back(stored(numbers(static_cast<int>(memory.size())), type));
    wide.push_back(loaded(memory.back(), type));
  }
  for (const DType type : writes) {
    task.writes.push_back(buffer(type));
    memory.push_back(stored(std::vector<float>(static_cast<std::size_t>(count)), type));
    wide.emplace_back(static_cast<std::size_t>(count));
  }
  std::vector<const float*> in;
  std::vector<float*> out;
  Addresses addresses;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    (i < reads.size() ? addresses.reads : addresses.writes).push_back(memory[i].data());
    i < reads.size() ? in.push_back(wide[i].data()) : out.push_back(wide[i].data());
  }
  function(in.data(), out.data(), count);
  draft.tasks.push_back(task);
  const plan::Plan plan = plan::finish(std::move(draft));
  const auto kernel = prepare_strips(plan, task, addresses, function);
  for (int member = 0; member < members; ++member) {
    kernel->run(threads::Member{member, members, nullptr}, 1);
  }
  Rounding expected;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    std::vector<std::byte> rounded(memory[reads.size() + i].size());
    if (writes[i] == DType::f32) {
      rounded = stored(wide[reads.size() + i], writes[i]);
    } else {
      expected += narrow(writes[i], wide[reads.size() + i].data(), rounded.data(), count);
    }
    EXPECT_EQ(memory[reads.size() + i], rounded) << "result " << i << ", a team of " << members;
  }
  EXPECT_EQ(kernel->rounding(), expected);
}

template <typename AnyOp>
void expect_same(const AnyOp& op, std::size_t reads, std::size_t writes) {
  for (const DType in : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
      for (const int members : {1, 3}) {
        std::vector<DType> types(reads, in);
        types.back() = DType::bf16;  // operands need not have one type
        expect_same(strip_function(op), op, types, std::vector<DType>(writes, out), members);
      }
    }
  }
}

TEST(Strips, TheBitsAndTheCountOfRoundingsAreThoseOfWholeOperands) {
  expect_same(op::Add{}, 2, 1);
  expect_same(op::Gelu{}, 1, 1);
  expect_same(op::Gelu{.tanh = true}, 1, 1);
  expect_same(op::GeluBackward{}, 2, 1);
  expect_same(op::GeluBackward{.tanh = true}, 2, 1);
  expect_same(op::SiluGate{}, 2, 1);
  expect_same(op::SiluGateBackward{}, 3, 2);
}

}  // namespace
}  // namespace baton::exec::cpu
