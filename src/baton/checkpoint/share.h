#pragma once

#include <memory>

#include "baton/checkpoint/checkpoint.h"
#include "baton/ranks/world.h"

namespace baton::checkpoint {

/// Lets all ranks read rank 0's file. All ranks must read the same tensors in the same order.
class SharedReader final : public TensorReader {
 public:
  /// All ranks make one; those other than rank 0 pass nullptr.
  SharedReader(std::shared_ptr<ranks::World> world, std::shared_ptr<const TensorReader> at_rank_0);

  const Tensors& tensors() const override { return tensors_; }
  const Metadata& metadata() const override { return metadata_; }
  void read(const std::string& name, std::span<std::byte> into) const override;

 private:
  std::shared_ptr<ranks::World> world_;
  std::shared_ptr<const TensorReader> at_rank_0_;
  Tensors tensors_;
  Metadata metadata_;
};

}  // namespace baton::checkpoint
