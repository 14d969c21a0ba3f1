#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "baton/checkpoint/checkpoint.h"

namespace baton::test {

struct Tensor {
  archive::ElementType dtype;
  Shape shape;
  std::vector<std::byte> bytes;  // row-major

  bool operator==(const Tensor&) const = default;
};

/// A checkpoint that is all in memory.
struct Archive {
  std::map<std::string, Tensor> tensors;
  checkpoint::Metadata metadata;

  bool operator==(const Archive&) const = default;
};

inline checkpoint::Tensors infos(const Archive& archive) {
  checkpoint::Tensors list;
  for (const auto& [name, tensor] : archive.tensors) {
    list[name] = {tensor.dtype, tensor.shape};
  }
  return list;
}

class ArchiveSource final : public checkpoint::TensorReader {
 public:
  explicit ArchiveSource(const Archive& archive) : archive_(archive), infos_(infos(archive)) {}
  const checkpoint::Tensors& tensors() const override { return infos_; }
  const checkpoint::Metadata& metadata() const override { return archive_.metadata; }
  void read(const std::string& name, std::span<std::byte> into) const override {
    const std::vector<std::byte>& bytes = archive_.tensors.at(name).bytes;
    std::copy(bytes.begin(), bytes.end(), into.begin());
  }

 private:
  const Archive& archive_;
  checkpoint::Tensors infos_;
};

inline void write_archive(const std::filesystem::path& path, const Archive& archive) {
  checkpoint::ArchiveWriter writer(path, infos(archive), archive.metadata);
  for (const auto& [name, tensor] : archive.tensors) {
    writer.append(tensor.bytes);
  }
  writer.commit();
}

inline Archive read_archive(const checkpoint::TensorReader& source) {
  Archive archive;
  archive.metadata = source.metadata();
  for (const auto& [name, info] : source.tensors()) {
    Tensor& tensor = archive.tensors[name] = {info.dtype, info.shape, std::vector<std::byte>(info.size())};
    source.read(name, tensor.bytes);
  }
  return archive;
}
inline Archive read_archive(const std::filesystem::path& path) { return read_archive(checkpoint::ArchiveReader(path)); }

inline std::vector<std::byte> room_for(const plan::Plan& plan) {
  return std::vector<std::byte>(static_cast<std::size_t>(checkpoint::room_for(checkpoint::tensors_of(plan)).count));
}

/// A checkpoint of a run as it is now.
inline Archive snapshot(const plan::Plan& plan, const exec::Executor& executor, const checkpoint::TrainingState& progress) {
  Archive archive;
  archive.metadata = checkpoint::to_metadata(progress);
  const checkpoint::Tensors tensors = checkpoint::tensors_of(plan);
  auto next = tensors.begin();
  std::vector<std::byte> room = room_for(plan);
  checkpoint::for_each_tensor(plan, executor, room, [&](std::span<const std::byte> bytes) {
    archive.tensors[next->first] = {next->second.dtype, next->second.shape, {bytes.begin(), bytes.end()}};
    ++next;
  });
  return archive;
}

inline checkpoint::TrainingState restore(const plan::Plan& plan, exec::Executor& executor, const Archive& archive) {
  std::vector<std::byte> room = room_for(plan);
  return checkpoint::restore(plan, executor, ArchiveSource(archive), room);
}

inline std::filesystem::path save(const checkpoint::Folder& folder, const Archive& archive, std::int64_t step) {
  const auto writer = folder.begin(step, infos(archive), archive.metadata);
  for (const auto& [name, tensor] : archive.tensors) {
    writer->append(tensor.bytes);
  }
  return folder.finish(*writer);
}

/// The first tensor of floats that are not all finite; empty if there is none.
inline std::string not_finite(const Archive& archive) {
  for (const auto& [name, tensor] : archive.tensors) {
    for (std::size_t at = 0; tensor.dtype == DType::f32 && at < tensor.bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + at, sizeof value);
      if (!std::isfinite(value)) {
        return name;
      }
    }
  }
  return "";
}

}  // namespace baton::test
