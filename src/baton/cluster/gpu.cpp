#include "baton/cluster/gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::cluster {
namespace {

constexpr std::string_view accepted_gpus = "cuda, cuda:0,1 (by number) or cuda:0/4 (four parts of one)";
/// Partitions come in groups of multiprocessors that cannot be divided.
constexpr int most_parts = 16;

int parse_ordinal(std::string_view text, std::span<const Gpu> gpus) {
  const std::int64_t ordinal = parse_integer(text, fmt::format("a GPU's number (write {})", accepted_gpus), 0, 1 << 20);
  if (ordinal >= static_cast<std::int64_t>(gpus.size())) {
    throw usage_error("there is no GPU {} here: {}", ordinal,
                      gpus.size() == 1 ? "there is one, number 0" : fmt::format("there are {}, from 0", gpus.size()));
  }
  return static_cast<int>(ordinal);
}

/// "0/4", "0/4:2": parts of one GPU.
std::vector<GpuPart> parse_parts(std::string_view text, std::span<const Gpu> gpus) {
  const std::size_t slash = text.find('/');
  const int ordinal = parse_ordinal(text.substr(0, slash), gpus);
  const std::vector<std::string_view> counts = split(text.substr(slash + 1), ':');
  if (counts.size() > 2) {
    throw usage_error("'{}' is not a part of a GPU: write {}", text, accepted_gpus);
  }
  const auto of = static_cast<int>(parse_integer(counts[0], "the number of parts of a GPU", 1, most_parts));
  const auto count = static_cast<int>(parse_integer(counts.back(), "the number of parts that are used", 1, of));
  std::vector<GpuPart> parts;
  for (int part = 0; part < count; ++part) {
    parts.push_back({ordinal, part, of, gpus[static_cast<std::size_t>(ordinal)].multiprocessors / of, ordinal});
  }
  return parts;
}

}  // namespace

bool names_gpus(std::string_view text) { return canonical(text.substr(0, text.find(':'))) == "cuda"; }

std::vector<Device> parse_gpu_devices(std::string_view text, std::span<const Gpu> gpus, std::optional<Bytes> memory) {
  check(names_gpus(text), "'{}' names no GPUs", text);
  std::vector<GpuPart> parts;
  const std::size_t colon = text.find(':');
  const auto whole = [&](int ordinal) {
    if (std::any_of(parts.begin(), parts.end(), [&](const GpuPart& part) { return part.ordinal == ordinal; })) {
      throw usage_error("'{}' names GPU {} twice", text, ordinal);
    }
    parts.push_back({ordinal, 0, 1, gpus[static_cast<std::size_t>(ordinal)].multiprocessors, ordinal});
  };
  if (colon == std::string_view::npos) {
    for (std::size_t g = 0; g < gpus.size(); ++g) {
      whole(static_cast<int>(g));
    }
  } else if (const std::string_view list = text.substr(colon + 1); list.find('/') != std::string_view::npos) {
    parts = parse_parts(list, gpus);
  } else {
    for (const std::string_view one : split(list, ',')) {
      whole(parse_ordinal(one, gpus));
    }
  }
  std::vector<Device> devices;
  for (const GpuPart& part : parts) {
    const Bytes share(gpus[static_cast<std::size_t>(part.ordinal)].memory.count / part.of);
    devices.push_back(
        {.name = part.of == 1 ? fmt::format("cuda:{}", part.ordinal) : fmt::format("cuda:{}.{}", part.ordinal, part.part),
         .cores = {},
         .memory = memory.value_or(share),
         .shared_lanes = false,
         .gpu = part});
  }
  return devices;
}

std::string gpu_words_of_rank(std::string_view text, std::size_t gpus, std::size_t local_rank) {
  check(names_gpus(text) && gpus > 0, "'{}' names none of {} GPUs", text, gpus);
  return text.find(':') == std::string_view::npos ? fmt::format("{}:{}", text, local_rank % gpus) : std::string(text);
}

}  // namespace baton::cluster
