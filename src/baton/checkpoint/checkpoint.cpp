#include "baton/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/units.h"
#include "baton/exec/contents.h"

namespace baton::checkpoint {
namespace {

namespace fs = std::filesystem;
using plan::ParameterPart;
using plan::Role;

constexpr std::string_view prefix = "step-";
constexpr std::string_view suffix = ".safetensors";

/// The name under which a buffer's contents are kept; nothing for buffers that a checkpoint does not hold.
std::optional<std::string> name_of(const plan::Buffer& buffer) {
  const auto* part = std::get_if<ParameterPart>(&buffer.content);
  if (std::holds_alternative<plan::LossScaler>(buffer.content)) {
    return "loss_scale";
  }
  if (part == nullptr || !buffer.persistent) {
    return std::nullopt;
  }
  if (buffer.role == Role::parameter) {
    return part->name;
  }
  return buffer.role == Role::optimizer_state ? std::optional(fmt::format("optimizer.{}.{}", part->slot, part->name))
                                              : std::nullopt;
}

/// The shape of what the buffer holds all or some of.
Shape whole_of(const plan::Buffer& buffer) {
  const auto* part = std::get_if<ParameterPart>(&buffer.content);
  return part == nullptr ? buffer.shape : part->whole;
}

/// Where the buffer's elements stand in that.
std::vector<std::int64_t> places_of(const plan::Buffer& buffer) {
  if (std::holds_alternative<ParameterPart>(buffer.content)) {
    return exec::places_in_parameter(buffer);
  }
  std::vector<std::int64_t> places(static_cast<std::size_t>(buffer.shape.elements()));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

template <typename Visit>
void for_each_kept(const plan::Plan& plan, Visit visit) {
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    if (const std::optional<std::string> name = name_of(plan.buffers()[b])) {
      visit(*name, BufferId(b), whole_of(plan.buffers()[b]));
    }
  }
}

double element(const Tensor& tensor, std::int64_t index) {
  const auto at = static_cast<std::size_t>(index);
  if (tensor.dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + 4 * at, 4);
    return static_cast<double>(value);
  }
  double value = 0;
  std::memcpy(&value, tensor.bytes.data() + 8 * at, 8);
  return value;
}

void set_element(Tensor& tensor, std::int64_t index, double value) {
  const auto at = static_cast<std::size_t>(index);
  if (tensor.dtype == DType::f32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(tensor.bytes.data() + 4 * at, &narrow, 4);
  } else {
    std::memcpy(tensor.bytes.data() + 8 * at, &value, 8);
  }
}

std::string remark(const Archive& archive, const std::string& key) {
  const auto found = archive.metadata.find(key);
  if (found == archive.metadata.end()) {
    throw usage_error("the checkpoint does not say its {}, so it is not one of a training run", key);
  }
  return found->second;
}

}  // namespace

Archive snapshot(const plan::Plan& plan, const exec::Executor& executor, const Progress& progress) {
  Archive archive;
  archive.metadata = {{"format", "pt"},
                      {"step", fmt::format("{}", progress.step)},
                      {"seed", fmt::format("{}", progress.seed)},
                      {"model", progress.model},
                      {"optimizer", progress.optimizer}};
  std::map<std::string, std::vector<bool>> known;
  for_each_kept(plan, [&](const std::string& name, BufferId id, const Shape& whole) {
    Tensor& tensor = archive.tensors[name];
    std::vector<bool>& there = known[name];
    if (there.empty()) {
      const std::int64_t elements = whole.elements();
      tensor.dtype = plan[id].dtype;
      tensor.shape = whole;
      tensor.bytes.resize(static_cast<std::size_t>(elements * size_of(tensor.dtype)));
      there.resize(static_cast<std::size_t>(elements), false);
    } else if (std::find(there.begin(), there.end(), false) == there.end()) {
      return;  // another device's copy
    }
    const std::vector<double> values = executor.read(id);
    const std::vector<std::int64_t> places = places_of(plan[id]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      set_element(tensor, places[i], values[i]);
      there[static_cast<std::size_t>(places[i])] = true;
    }
  });
  for (const auto& [name, there] : known) {
    check(std::find(there.begin(), there.end(), false) == there.end(), "nobody holds some of {}", name);
  }
  return archive;
}

Progress restore(const plan::Plan& plan, exec::Executor& executor, const Archive& archive) {
  Progress progress{.step = parse_integer(remark(archive, "step"), "the checkpoint's step", 0, std::int64_t{1} << 48),
                    .seed = static_cast<std::uint64_t>(parse_integer(remark(archive, "seed"), "the checkpoint's seed", 0,
                                                                     std::numeric_limits<std::int64_t>::max())),
                    .model = remark(archive, "model"),
                    .optimizer = remark(archive, "optimizer")};
  std::set<std::string> wanted;
  for_each_kept(plan, [&](const std::string& name, BufferId id, const Shape& whole) {
    const auto found = archive.tensors.find(name);
    if (found == archive.tensors.end()) {
      throw usage_error("the checkpoint of {} with {} has no {}: was it another model or optimizer?", progress.model,
                        progress.optimizer, name);
    }
    if (found->second.shape != whole || found->second.dtype != plan[id].dtype) {
      throw usage_error("{} is {} of {} in the checkpoint, but {} of {} in this run", name, to_text(found->second.shape),
                        to_text(found->second.dtype), to_text(whole), to_text(plan[id].dtype));
    }
    wanted.insert(name);
  });
  for (const auto& [name, tensor] : archive.tensors) {
    if (!wanted.contains(name)) {
      throw usage_error("the checkpoint of {} with {} holds {}, which this run has no place for", progress.model,
                        progress.optimizer, name);
    }
  }
  for_each_kept(plan, [&](const std::string& name, BufferId id, const Shape&) {
    const Tensor& tensor = archive.tensors.at(name);
    const std::vector<std::int64_t> places = places_of(plan[id]);
    std::vector<double> values(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      values[i] = element(tensor, places[i]);
    }
    executor.write(id, values);
  });
  executor.continue_from(progress.step);
  return progress;
}

std::string not_finite(const Archive& archive) {
  for (const auto& [name, tensor] : archive.tensors) {
    for (std::int64_t i = 0; tensor.dtype != DType::i32 && i < tensor.shape.elements(); ++i) {
      if (!std::isfinite(element(tensor, i))) {
        return name;
      }
    }
  }
  return "";
}

Folder::Folder(fs::path path, std::int64_t keep) : path_(std::move(path)), keep_(keep) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_)) {
    throw failure("the folder {} cannot be made: {}", path_.string(), error ? error.message() : "a file is in its place");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    if (entry.path().filename().string().starts_with(prefix) && is_leftover(entry.path())) {
      std::error_code ignored;
      fs::remove(entry.path(), ignored);
    }
  }
}

std::vector<fs::path> Folder::files() const {
  std::vector<fs::path> list;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix) && name.size() == prefix.size() + 12 + suffix.size()) {
      list.push_back(entry.path());
    }
  }
  std::sort(list.begin(), list.end());
  return list;
}

fs::path Folder::save(const Archive& archive, std::int64_t step) const {
  fs::path path = path_ / fmt::format("{}{:012}{}", prefix, step, suffix);
  write_archive(path, archive);
  std::vector<fs::path> all = files();
  std::error_code ignored;
  for (; all.back() > path; all.pop_back()) {
    fs::remove(all.back(), ignored);
  }
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) < all.size(); ++i) {
    fs::remove(all[i], ignored);
  }
  return path;
}

void Folder::require_empty() const {
  if (const std::vector<fs::path> all = files(); !all.empty()) {
    throw usage_error("{} holds the checkpoint {} of another run: go on from it with --resume, or give another folder",
                      path_.string(), all.back().filename().string());
  }
}

std::optional<Folder::Found> Folder::newest() const {
  std::vector<fs::path> all = files();
  std::string skipped;
  for (auto path = all.rbegin(); path != all.rend(); ++path) {
    try {
      return Found{*path, read_archive(*path), skipped};
    } catch (const Error& error) {
      skipped += (skipped.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (!skipped.empty()) {
    throw usage_error("no checkpoint in {} is whole: {}", path_.string(), skipped);
  }
  return std::nullopt;
}

}  // namespace baton::checkpoint
