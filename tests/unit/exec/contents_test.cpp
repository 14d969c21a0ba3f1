#include "baton/exec/contents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "baton/exec/backend/host_backends.h"
#include "baton/op/loss_scale.h"

namespace baton::exec {
namespace {

using plan::Buffer;
using plan::ParameterPart;
using plan::Role;

const std::vector<MemoryLayout> tiled = make_cpu_backend()->layouts();
const Shape whole{130, 70};  // several tiles, and parts of some

Buffer weight(ParameterPart part, const std::string& layout = "", DType type = DType::f32) {
  const Shape shape = part.piece_end > 0 ? Shape{part.piece_end - part.piece_begin} : part.shape();
  return {.role = Role::parameter, .dtype = type, .layout = layout, .persistent = true, .shape = shape, .content = std::move(part)};
}

ParameterPart part_of(std::uint32_t axis, std::int64_t begin, std::int64_t end) {
  return {.name = "w", .ordinal = 3, .fan_in = 70, .whole = whole, .axis = axis, .begin = begin, .end = end};
}

std::vector<double> filled(const Buffer& buffer, const RandomContents& source = {.seed = 5}, std::int64_t first_sample = 0) {
  std::vector<std::byte> memory(static_cast<std::size_t>(buffer.size().count), std::byte{0xff});
  fill_initial(buffer, memory.data(), source, first_sample, tiled);
  return read_elements(buffer, memory.data(), tiled);
}

TEST(Contents, EveryElementHasItsOwnPlaceInAnyOrder) {
  for (const std::string layout : {"", "tiled"}) {
    const Buffer buffer = weight(part_of(0, 0, 130), layout);
    std::set<std::int64_t> places;
    for (std::int64_t i = 0; i < whole.elements(); ++i) {
      places.insert(element_offset(buffer, i, tiled));
    }
    EXPECT_EQ(places.size(), static_cast<std::size_t>(whole.elements()));
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), whole.elements() - 1);
  }
}

TEST(Contents, AParametersValuesDoNotDependOnHowItIsSplit) {
  const std::vector<double> all = filled(weight(part_of(0, 0, 130)));
  EXPECT_NE(all[0], all[1]);
  EXPECT_LE(*std::max_element(all.begin(), all.end()), 1 / std::sqrt(70.0));
  ParameterPart piece = part_of(1, 10, 70);
  piece.piece_begin = 1001;
  piece.piece_end = 5003;
  for (const std::string layout : {"", "tiled"}) {
    for (const ParameterPart& part : {part_of(0, 0, 130), part_of(0, 60, 100), part_of(1, 7, 70), piece}) {
      const Buffer buffer = weight(part, layout);
      const std::vector<double> some = filled(buffer);
      const PlaceInParameter place(buffer, tiled);
      for (std::size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(some[i], all[static_cast<std::size_t>(place(element_offset(buffer, static_cast<std::int64_t>(i), tiled)))])
            << i << " of axis " << part.axis << " from " << part.begin;
      }
    }
  }
  EXPECT_NE(filled(weight(part_of(0, 0, 130)), {.seed = 6}), all);
}

TEST(Contents, PartsOfHeadsLieInTheMiddleOfAParameterAndInItsTiles) {
  const auto heads = [](const Shape& shape, std::uint32_t axis, std::int64_t begin, std::int64_t end) {
    return ParameterPart{.name = "w", .ordinal = 3, .fan_in = 70, .whole = shape, .axis = axis, .begin = begin, .end = end};
  };
  for (const Shape& shape : {Shape{7, 30, 66}, Shape{66, 7, 30}}) {
    const std::vector<double> all = filled(weight(heads(shape, 0, 0, shape[0])));
    std::vector<ParameterPart> parts{heads(shape, 0, 2, 5), heads(shape, 1, 3, 7), heads(shape, 2, 11, 30)};
    parts.push_back(parts[1]);
    parts.back().piece_begin = 101;
    parts.back().piece_end = 733;
    for (const std::string layout : {"", "tiled", "tiled_heads"}) {
      for (const ParameterPart& part : parts) {
        const Buffer buffer = weight(part, layout);
        const std::vector<double> some = filled(buffer);
        const PlaceInParameter place(buffer, tiled);
        std::set<std::int64_t> places;
        for (std::size_t i = 0; i < some.size(); ++i) {
          const std::int64_t at = place(element_offset(buffer, static_cast<std::int64_t>(i), tiled));
          places.insert(at);
          ASSERT_EQ(some[i], all[static_cast<std::size_t>(at)]) << i << " of axis " << part.axis << ", " << layout;
          const std::int64_t along = part.axis == 0   ? at / (shape[1] * shape[2])
                                     : part.axis == 1 ? at / shape[2] % shape[1]
                                                      : at % shape[2];
          ASSERT_TRUE(along >= part.begin && along < part.end) << along;
        }
        EXPECT_EQ(places.size(), some.size());
      }
    }
  }
}

TEST(Contents, SamplesAreTheSameInAnyPartOfTheBatchAndTheDataSetBeginsAnew) {
  const auto rows = [](std::int64_t begin, std::int64_t end) {
    return Buffer{.role = Role::input, .persistent = true, .shape = {end - begin, 4}, .content = plan::BatchRows{begin, end}};
  };
  const RandomContents source{.seed = 5, .samples = 10};
  const std::vector<double> batch = filled(rows(0, 8), source);
  const std::vector<double> part = filled(rows(3, 5), source);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), batch.begin() + 12));
  const std::vector<double> later = filled(rows(0, 8), source, 8);  // samples 8, 9, 0, 1, …
  EXPECT_TRUE(std::equal(later.begin() + 8, later.end(), batch.begin()));
  EXPECT_FALSE(std::equal(later.begin(), later.begin() + 8, batch.begin()));
  Buffer targets = rows(0, 8);
  targets.role = Role::target;
  EXPECT_NE(filled(targets, source), batch);
}

TEST(Contents, SamplesAreTheSameWhereTheirSequenceComesFirstAndInParts) {
  constexpr std::int64_t positions = 6;
  constexpr std::int64_t features = 4;
  const RandomContents source{.seed = 5, .classes = 50, .tokens = 40};
  for (const bool integers : {false, true}) {
    const auto buffer = [&](Shape shape, plan::BatchRows rows, Role role) {
      return Buffer{.role = role, .dtype = integers ? DType::i32 : DType::f32, .persistent = true, .shape = shape, .content = rows};
    };
    for (const Role role : {Role::input, Role::target}) {
      const std::vector<double> by_sample = filled(buffer({8, positions, features}, {0, 8}, role), source);
      for (const std::int64_t first : {0, 3}) {
        const std::int64_t count = 3;
        const std::vector<double> part = filled(buffer({count, 2, features}, {5, 7, 1, first}, role), source);
        for (std::int64_t t = 0; t < count; ++t) {
          for (std::int64_t s = 0; s < 2; ++s) {
            for (std::int64_t c = 0; c < features; ++c) {
              ASSERT_EQ(part[static_cast<std::size_t>((t * 2 + s) * features + c)],
                        by_sample[static_cast<std::size_t>(((5 + s) * positions + first + t) * features + c)]);
            }
          }
        }
      }
    }
  }
}

TEST(Contents, GainsBeginAtOnesAndBiasesOfNormsAtZeros) {
  ParameterPart part = part_of(0, 0, 130);
  part.fan_in = 0;
  EXPECT_EQ(filled(weight(part)), std::vector<double>(static_cast<std::size_t>(whole.elements()), 1));
  part.fan_in = -1;
  EXPECT_EQ(filled(weight(part)), std::vector<double>(static_cast<std::size_t>(whole.elements()), 0));
}

TEST(Contents, LabelsAreOfTheClassesThereAre) {
  const Buffer labels{
      .role = Role::target, .dtype = DType::i32, .persistent = true, .shape = {200}, .content = plan::BatchRows{0, 200}};
  std::set<double> seen;
  for (const double label : filled(labels, {.seed = 1, .classes = 3})) {
    seen.insert(label);
  }
  EXPECT_EQ(seen, (std::set<double>{0, 1, 2}));
}

TEST(Contents, StateBeginsAtZeroAndALossScaleAtItsFirstValue) {
  Buffer state = weight(part_of(0, 0, 130));
  state.role = Role::optimizer_state;
  EXPECT_EQ(filled(state), std::vector<double>(static_cast<std::size_t>(whole.elements()), 0));
  const Buffer scaler{.persistent = true,
                      .shape = {static_cast<std::int64_t>(sizeof(op::ScaleState) / sizeof(float))},
                      .content = plan::LossScaler{.initial = 1024}};
  const std::vector<double> held = filled(scaler);
  EXPECT_EQ(held[0], 1024.0);
  EXPECT_TRUE(std::all_of(held.begin() + 1, held.end(), [](double value) { return value == 0; }));
}

TEST(Contents, WhatIsWrittenIsReadBackRoundedToTheBuffersType) {
  std::vector<double> values(static_cast<std::size_t>(whole.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i) - 4000;
  }
  for (const std::string layout : {"", "tiled"}) {
    for (const DType type : {DType::f32, DType::f64, DType::i32, DType::bf16, DType::f16}) {
      const Buffer buffer = weight(part_of(0, 0, 130), layout, type);
      std::vector<std::byte> memory(static_cast<std::size_t>(buffer.size().count));
      write_elements(buffer, memory.data(), values, tiled);
      const std::vector<double> read = read_elements(buffer, memory.data(), tiled);
      if (!is_narrow(type)) {
        EXPECT_EQ(read, values);
        continue;
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(read[i], values[i], std::abs(values[i]) / (type == DType::bf16 ? 256 : 2048));
      }
      write_elements(buffer, memory.data(), read, tiled);
      EXPECT_EQ(read_elements(buffer, memory.data(), tiled), read) << "what is rounded already stays";
    }
  }
}

}  // namespace
}  // namespace baton::exec
