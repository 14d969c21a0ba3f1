#include "baton/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/narrow.h"
#include "baton/base/units.h"
#include "baton/exec/contents.h"
#include "baton/model/names.h"

namespace baton::checkpoint {
namespace {

namespace fs = std::filesystem;
using plan::ParameterPart;
using plan::Role;

constexpr std::string_view prefix = "step-";
constexpr std::string_view suffix = ".safetensors";

/// The name of the tensor that a buffer holds, or holds a part of.
struct Name {
  std::string set;  // in front of a tensor's name: nothing, or `optimizer.0.`
  std::string parameter;
  bool operator<(const Name& other) const { return std::tie(set, parameter) < std::tie(other.set, other.parameter); }
};
/// Returns nullopt for buffers that a checkpoint does not hold.
std::optional<Name> name_of(const plan::Buffer& buffer) {
  const auto* part = std::get_if<ParameterPart>(&buffer.content);
  if (std::holds_alternative<plan::LossScaler>(buffer.content)) {
    return Name{"", "loss_scale"};
  }
  if (part == nullptr || !buffer.persistent) {
    return std::nullopt;
  }
  if (buffer.role == Role::parameter || buffer.role == Role::statistic) {
    return Name{"", part->name};
  }
  return buffer.role == Role::optimizer_state ? std::optional(Name{fmt::format("optimizer.{}.", part->slot), part->name})
                                              : std::nullopt;
}

/// The shape of the whole parameter, of which the buffer may hold a part.
Shape whole_of(const plan::Buffer& buffer) {
  const auto* part = std::get_if<ParameterPart>(&buffer.content);
  return part == nullptr ? buffer.shape : part->whole;
}

/// A buffer, and the part of a tensor that it holds, or holds a piece of.
struct Holder {
  BufferId id;
  std::size_t part;
};
struct Kept {
  TensorInfo info;
  model::StoredTensor stored;
  std::vector<Holder> parts;  // which together hold it: of copies, the first
  std::vector<Holder> all;    // the copies among them, also those of 16 bits
};
/// The buffers that hold each tensor, by its name.
std::map<std::string, Kept> kept_by(const plan::Plan& plan) {
  std::map<Name, std::vector<BufferId>> buffers;
  std::map<std::string, std::map<std::string, Shape>> sets;
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan.buffers()[b];
    if (const std::optional<Name> name = name_of(buffer)) {
      buffers[*name].push_back(BufferId(b));
      sets[name->set][name->parameter] = whole_of(buffer);
    }
  }
  std::map<std::string, Kept> list;
  for (const auto& [set, parameters] : sets) {
    for (model::StoredTensor& stored : model::stored_tensors(parameters)) {
      Kept& kept = list[set + stored.name];
      for (std::size_t p = 0; p < stored.parts.size(); ++p) {
        for (const BufferId id : buffers.at({set, stored.parts[p].parameter})) {
          kept.all.push_back({id, p});
          if (plan::is_kept_copy(plan[id])) {
            continue;
          }
          kept.info = {plan[id].dtype, stored.shape};
          const bool copy = std::any_of(kept.parts.begin(), kept.parts.end(),
                                        [&](const Holder& other) { return plan[other.id].content == plan[id].content; });
          if (!copy) {
            kept.parts.push_back({id, p});
          }
        }
      }
      kept.stored = std::move(stored);
    }
  }
  for (const auto& [name, kept] : list) {
    std::int64_t held = 0;
    for (const Holder& holder : kept.parts) {
      held += plan[holder.id].shape.elements();
    }
    check(held == kept.info.shape.elements(), "devices hold {} elements of {}, which has {}", held, name,
          kept.info.shape.elements());
  }
  return list;
}

/// Visits a buffer's memory in runs of a bounded size: visit(begin, run, elements), where `begin` counts bytes, `run` is room for
/// them, and elements(each) calls each(address in the run, place in the tensor, in elements).
template <typename Visit>
void for_each_run(const plan::Buffer& buffer, exec::MemoryLayouts layouts, const model::StoredTensor& stored, std::size_t part,
                  Visit visit) {
  constexpr std::int64_t most_elements = 1 << 17;
  std::optional<exec::PlaceInParameter> place;
  if (std::holds_alternative<ParameterPart>(buffer.content)) {
    place.emplace(buffer, layouts);
  }
  const std::int64_t size = size_of(buffer.dtype);
  std::vector<std::byte> run;
  for (std::int64_t first = 0; first < buffer.shape.elements(); first += most_elements) {
    const std::int64_t count = std::min(most_elements, buffer.shape.elements() - first);
    run.resize(static_cast<std::size_t>(count * size));
    visit(static_cast<std::size_t>(first * size), std::span(run), [&](const auto& each) {
      for (std::int64_t i = 0; i < count; ++i) {
        each(run.data() + i * size, stored.place(part, place ? (*place)(first + i) : first + i));
      }
    });
  }
}

/// Assembles a tensor from the parts on the devices.
void gather(const plan::Plan& plan, const exec::Executor& executor, const Kept& kept, std::span<std::byte> tensor) {
  const std::int64_t size = size_of(kept.info.dtype);
  for (const Holder& holder : kept.parts) {
    const auto visit = [&](std::size_t begin, std::span<std::byte> run, const auto& elements) {
      executor.read(holder.id, begin, run);
      elements([&](const std::byte* element, std::int64_t place) { std::copy_n(element, size, tensor.data() + place * size); });
    };
    for_each_run(plan[holder.id], executor.layouts(), kept.stored, holder.part, visit);
  }
}

/// A float in memory as a 16-bit number.
void round_to(DType type, const std::byte* from, std::byte* to) {
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  const std::uint16_t bits = type == DType::bf16 ? Bf16(value).bits : F16(value).bits;
  std::memcpy(to, &bits, sizeof bits);
}

/// Copies to each device its parts of a tensor, rounded for 16-bit copies.
void scatter(const plan::Plan& plan, exec::Executor& executor, const Kept& kept, std::span<const std::byte> tensor) {
  const std::int64_t size = size_of(kept.info.dtype);
  for (const Holder& holder : kept.all) {
    const DType type = plan[holder.id].dtype;
    const auto visit = [&](std::size_t begin, std::span<std::byte> run, const auto& elements) {
      elements([&](std::byte* element, std::int64_t place) {
        const std::byte* from = tensor.data() + place * size;
        if (type == kept.info.dtype) {
          std::copy_n(from, size, element);
        } else {
          round_to(type, from, element);
        }
      });
      executor.write(holder.id, begin, run);
    };
    for_each_run(plan[holder.id], executor.layouts(), kept.stored, holder.part, visit);
  }
}

/// A usage error if a wanted tensor is missing, or of another shape; `whose` names the owner of those that are there.
void require_tensors(const std::map<std::string, Kept>& wanted, const Tensors& there, const std::string& whose) {
  for (const auto& [name, kept] : wanted) {
    const auto found = there.find(name);
    if (found == there.end()) {
      throw usage_error("{} has no {}: was it another model or optimizer?", whose, name);
    }
    if (found->second != kept.info) {
      throw usage_error("{} is {} of {} in the checkpoint, but {} of {} in this run", name, to_text(found->second.shape),
                        to_text(found->second.dtype), to_text(kept.info.shape), to_text(kept.info.dtype));
    }
  }
}

bool is_finite(const TensorInfo& info, std::span<const std::byte> bytes) {
  const auto all_finite = [&](auto kind) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof kind) {
      std::memcpy(&kind, bytes.data() + at, sizeof kind);
      if (!std::isfinite(kind)) {
        return false;
      }
    }
    return true;
  };
  return info.dtype == DType::f32 ? all_finite(0.0F) : info.dtype == DType::f64 ? all_finite(0.0) : true;
}

std::string metadata_value(const TensorReader& source, const std::string& key) {
  const auto found = source.metadata().find(key);
  if (found == source.metadata().end()) {
    throw usage_error("the checkpoint does not say its {}, so it is not one of a training run", key);
  }
  return found->second;
}

constexpr std::string_view setting_prefix = "flag.";

/// The checkpoints there, oldest first.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> list;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix) && name.size() == prefix.size() + 12 + suffix.size()) {
      list.push_back(entry.path());
    }
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

Metadata to_metadata(const TrainingState& state) {
  Metadata metadata{{"format", "pt"},
                    {"step", fmt::format("{}", state.step)},
                    {"seed", fmt::format("{}", state.seed)},
                    {"model", state.model},
                    {"optimizer", state.optimizer}};
  for (const auto& [flag, value] : state.settings) {
    metadata[std::string(setting_prefix) + flag] = value;
  }
  return metadata;
}

Tensors tensors_of(const plan::Plan& plan) {
  Tensors tensors;
  for (const auto& [name, kept] : kept_by(plan)) {
    tensors[name] = kept.info;
  }
  return tensors;
}

Bytes room_for(const Tensors& tensors) {
  std::size_t most = 0;
  for (const auto& [name, tensor] : tensors) {
    most = std::max(most, tensor.size());
  }
  return Bytes(static_cast<std::int64_t>(most));
}

std::string for_each_tensor(const plan::Plan& plan, const exec::Executor& executor, std::span<std::byte> room,
                            const std::function<void(std::span<const std::byte> tensor)>& visit) {
  for (const auto& [name, kept] : kept_by(plan)) {
    const std::span<std::byte> tensor = room.first(kept.info.size());
    gather(plan, executor, kept, tensor);
    if (!is_finite(kept.info, tensor)) {
      return name;
    }
    visit(tensor);
  }
  return "";
}

TrainingState training_state_of(const TensorReader& source) {
  TrainingState state{.step = parse_integer(metadata_value(source, "step"), "the checkpoint's step", 0, std::int64_t{1} << 48),
                      .seed = static_cast<std::uint64_t>(parse_integer(metadata_value(source, "seed"), "the checkpoint's seed", 0,
                                                                       std::numeric_limits<std::int64_t>::max())),
                      .model = metadata_value(source, "model"),
                      .optimizer = metadata_value(source, "optimizer")};
  for (const auto& [key, value] : source.metadata()) {
    if (key.starts_with(setting_prefix)) {
      state.settings[key.substr(setting_prefix.size())] = value;
    }
  }
  return state;
}

TrainingState restore(const plan::Plan& plan, exec::Executor& executor, const TensorReader& source, std::span<std::byte> room) {
  TrainingState state = training_state_of(source);
  const std::map<std::string, Kept> wanted = kept_by(plan);
  require_tensors(wanted, source.tensors(), fmt::format("the checkpoint of {} with {}", state.model, state.optimizer));
  for (const auto& [name, tensor] : source.tensors()) {
    if (!wanted.contains(name)) {
      throw usage_error("the checkpoint of {} with {} holds {}, which this run has no place for", state.model, state.optimizer,
                        name);
    }
  }
  for (const auto& [name, kept] : wanted) {
    const std::span<std::byte> tensor = room.first(kept.info.size());
    source.read(name, tensor);
    scatter(plan, executor, kept, tensor);
  }
  executor.continue_from(state.step);
  return state;
}

void restore_weights(const plan::Plan& plan, exec::Executor& executor, const TensorReader& source, std::span<std::byte> room) {
  std::map<std::string, Kept> wanted = kept_by(plan);
  std::erase_if(wanted, [](const auto& one) { return !is_weight(one.first); });
  require_tensors(wanted, source.tensors(), "the checkpoint");
  for (const auto& [name, kept] : wanted) {
    const std::span<std::byte> tensor = room.first(kept.info.size());
    source.read(name, tensor);
    scatter(plan, executor, kept, tensor);
  }
}

void copy_weights(const plan::Plan& from, const exec::Executor& source, const plan::Plan& to, exec::Executor& target,
                  std::span<std::byte> room) {
  const std::map<std::string, Kept> there = kept_by(from);
  for (const auto& [name, kept] : kept_by(to)) {
    const auto found = there.find(name);
    check(found != there.end() && found->second.info == kept.info, "{} is not what both plans hold", name);
    const std::span<std::byte> tensor = room.first(kept.info.size());
    gather(from, source, found->second, tensor);
    scatter(to, target, kept, tensor);
  }
}

Folder::Folder(fs::path path, std::int64_t keep) : path_(std::move(path)), keep_(keep) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_)) {
    throw failure("the folder {} cannot be made: {}", path_.string(), error ? error.message() : "a file is in its place");
  }
  if (::access(path_.c_str(), R_OK | W_OK | X_OK) != 0) {
    throw failure("nothing can be saved in the folder {}: {}", path_.string(), std::strerror(errno));
  }
  lock_ = FolderLock(
      path_, fmt::format("another run saves its checkpoints in {}: wait for its end, or give another folder", path_.string()));
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    if (entry.path().filename().string().starts_with(prefix) && is_leftover(entry.path())) {
      std::error_code ignored;
      fs::remove(entry.path(), ignored);
    }
  }
}

std::unique_ptr<ArchiveWriter> Folder::begin(std::int64_t step, Tensors tensors, Metadata metadata) const {
  return std::make_unique<ArchiveWriter>(path_ / fmt::format("{}{:012}{}", prefix, step, suffix), std::move(tensors),
                                         std::move(metadata));
}

fs::path Folder::finish(ArchiveWriter& writer) const {
  writer.commit();
  std::vector<fs::path> all = files_in(path_);
  std::error_code ignored;
  for (; !all.empty() && all.back() > writer.path(); all.pop_back()) {
    fs::remove(all.back(), ignored);
  }
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) < all.size(); ++i) {
    fs::remove(all[i], ignored);
  }
  return writer.path();
}

void Folder::require_empty() const {
  if (const std::vector<fs::path> all = files_in(path_); !all.empty()) {
    throw usage_error("{} holds the checkpoint {} of another run: continue it with --resume, or give another folder",
                      path_.string(), all.back().filename().string());
  }
}

std::optional<FoundCheckpoint> newest_in(const fs::path& folder) {
  std::vector<fs::path> all = files_in(folder);
  std::string skipped;
  for (auto path = all.rbegin(); path != all.rend(); ++path) {
    try {
      return FoundCheckpoint{*path, std::make_unique<ArchiveReader>(*path), skipped};
    } catch (const Error& error) {
      skipped += (skipped.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (!skipped.empty()) {
    throw usage_error("no checkpoint in {} is whole: {}", folder.string(), skipped);
  }
  return std::nullopt;
}

}  // namespace baton::checkpoint
