#include "baton/cluster/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::cluster {
namespace {

constexpr std::string_view accepted_gpus = "cuda, cuda:0,1 (by number) or cuda:0/4 (four parts of one)";
/// Partitions come in groups of multiprocessors that cannot be divided.
constexpr int most_parts = 16;

int parse_number_of_gpu(std::string_view text) {
  return static_cast<int>(parse_integer(text, fmt::format("a GPU's number (write {})", accepted_gpus), 0, 1 << 20));
}

/// "0/4", "0/4:2": parts of one GPU.
GpuNames parse_parts(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::vector<std::string_view> counts = split(text.substr(slash + 1), ':');
  if (counts.size() > 2) {
    throw usage_error("'{}' is not a part of a GPU: write {}", text, accepted_gpus);
  }
  GpuNames names{.numbers = {parse_number_of_gpu(text.substr(0, slash))}};
  names.parts = static_cast<int>(parse_integer(counts[0], "the number of parts of a GPU", 1, most_parts));
  if (counts.size() == 2) {
    names.used = static_cast<int>(parse_integer(counts[1], "the number of parts that are used", 1, names.parts));
  }
  return names;
}

std::vector<GpuPart> parts_of(const GpuNames& names, std::span<const Gpu> gpus) {
  for (const int number : names.numbers) {
    if (static_cast<std::size_t>(number) >= gpus.size()) {
      throw usage_error("there is no GPU {} here: {}", number,
                        gpus.size() == 1 ? "there is one, number 0" : fmt::format("there are {}, from 0", gpus.size()));
    }
  }
  std::vector<GpuPart> parts;
  if (names.parts > 0) {
    if (names.parts > most_parts || names.used > names.parts) {
      throw usage_error("a GPU has at most {} parts, so there are no devices {}", most_parts, to_text(names));
    }
    const int number = names.numbers.at(0);
    for (int part = 0; part < (names.used > 0 ? names.used : names.parts); ++part) {
      parts.push_back({number, part, names.parts, gpus[static_cast<std::size_t>(number)].multiprocessors / names.parts, number});
    }
    return parts;
  }
  const auto whole = [&](int number) {
    parts.push_back({number, 0, 1, gpus[static_cast<std::size_t>(number)].multiprocessors, number});
  };
  for (std::size_t g = 0; g < gpus.size() && names.numbers.empty(); ++g) {
    whole(static_cast<int>(g));
  }
  std::for_each(names.numbers.begin(), names.numbers.end(), whole);
  return parts;
}

}  // namespace

bool names_gpus(std::string_view text) { return canonical(text.substr(0, text.find(':'))) == "cuda"; }

GpuNames parse_gpu_names(std::string_view text) {
  check(names_gpus(text), "'{}' names no GPUs", text);
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return {};
  }
  const std::string_view list = text.substr(colon + 1);
  if (list.find('/') != std::string_view::npos) {
    return parse_parts(list);
  }
  GpuNames names;
  for (const std::string_view one : split(list, ',')) {
    const int number = parse_number_of_gpu(one);
    if (std::find(names.numbers.begin(), names.numbers.end(), number) != names.numbers.end()) {
      throw usage_error("'{}' names GPU {} twice", text, number);
    }
    names.numbers.push_back(number);
  }
  return names;
}

std::string to_text(const GpuNames& names) {
  std::string text = names.numbers.empty() ? "cuda" : fmt::format("cuda:{}", fmt::join(names.numbers, ","));
  text += names.parts > 0 ? fmt::format("/{}", names.parts) : "";
  return text + (names.used > 0 ? fmt::format(":{}", names.used) : "");
}

std::vector<Device> gpu_devices(const GpuNames& names, std::span<const Gpu> gpus, std::optional<Bytes> memory) {
  std::vector<Device> devices;
  for (const GpuPart& part : parts_of(names, gpus)) {
    const Bytes share(gpus[static_cast<std::size_t>(part.ordinal)].memory.count / part.of);
    devices.push_back(
        {.name = part.of == 1 ? fmt::format("cuda:{}", part.ordinal) : fmt::format("cuda:{}.{}", part.ordinal, part.part),
         .cores = {},
         .memory = memory.value_or(share),
         .shared_lanes = false,
         .gpu = part,
         .product = "cuda",
         .kind = DeviceKind::gpu});
  }
  return devices;
}

std::vector<Device> parse_gpu_devices(std::string_view text, std::span<const Gpu> gpus, std::optional<Bytes> memory) {
  return gpu_devices(parse_gpu_names(text), gpus, memory);
}

GpuNames gpus_of_rank(GpuNames names, std::size_t gpus, std::size_t local_rank) {
  check(gpus > 0, "there are no GPUs for ranks");
  if (names.numbers.empty()) {
    names.numbers = {static_cast<int>(local_rank % gpus)};
  }
  return names;
}

}  // namespace baton::cluster
