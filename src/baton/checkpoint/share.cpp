#include "baton/checkpoint/share.h"

#include "baton/base/error.h"
#include "baton/exec/rank_run.h"
#include "baton/ranks/pack.h"

namespace baton::checkpoint {

SharedReader::SharedReader(std::shared_ptr<ranks::World> world, std::shared_ptr<const TensorReader> at_rank_0)
    : world_(std::move(world)), at_rank_0_(std::move(at_rank_0)) {
  ranks::Packer packer;
  if (at_rank_0_ != nullptr) {
    packer.add(at_rank_0_->metadata().size());
    for (const auto& [key, value] : at_rank_0_->metadata()) {
      packer.add_text(key).add_text(value);
    }
    for (const auto& [name, tensor] : at_rank_0_->tensors()) {
      packer.add_text(name).add_text(tensor.dtype.name()).add(tensor.shape.rank());
      for (std::size_t axis = 0; axis < tensor.shape.rank(); ++axis) {
        packer.add(tensor.shape[axis]);
      }
    }
  }
  ranks::Blob blob(packer.span().begin(), packer.span().end());
  world_->broadcast(blob, 0);
  ranks::Unpacker unpacker(blob);
  for (auto left = unpacker.take<std::size_t>(); left > 0 && unpacker.good(); --left) {
    std::string key = unpacker.take_text();
    metadata_[std::move(key)] = unpacker.take_text();
  }
  while (!unpacker.empty() && unpacker.good()) {
    TensorInfo& tensor = tensors_[unpacker.take_text()];
    tensor.dtype = archive::ElementType::by_name(unpacker.take_text()).value();
    std::vector<std::int64_t> extents;
    for (auto rank = unpacker.take<std::size_t>(); rank > 0 && unpacker.good(); --rank) {
      extents.push_back(unpacker.take<std::int64_t>());
    }
    tensor.shape = Shape(extents);
  }
  check(unpacker.good(), "the list of tensors that rank 0 sent is cut short");
}

void SharedReader::read(const std::string& name, std::span<std::byte> into) const {
  ranks::on_rank_0(*world_, [&] { at_rank_0_->read(name, into); });
  exec::share_bytes(*world_, 0, into);
}

}  // namespace baton::checkpoint
