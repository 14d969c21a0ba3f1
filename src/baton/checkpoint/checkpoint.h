#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "baton/checkpoint/safetensors.h"
#include "baton/exec/executor.h"
#include "baton/plan/plan.h"

/// What a training run leaves to be continued from: weights and optimizer state under names that do not depend on how the
/// run was split, so what was saved under one strategy goes on under another.
namespace baton::checkpoint {

/// What a checkpoint says of the run beside its tensors.
struct Progress {
  std::int64_t step = 0;  // steps done
  std::uint64_t seed = 0;
  std::string model;
  std::string optimizer;
};

/// `block0.weight`, and for slot k of its optimizer state `optimizer.k.block0.weight`: put together from the parts and pieces
/// that the devices hold. The state of a loss scaler is `loss_scale`.
Archive snapshot(const plan::Plan& plan, const exec::Executor& executor, const Progress& progress);

/// Puts weights and state into an executor, whatever its strategy, and lets it go on behind the checkpoint's last step. A
/// usage error names what is missing or of another shape, before anything is changed.
Progress restore(const plan::Plan& plan, exec::Executor& executor, const Archive& archive);

/// The first tensor with a value that is not a number or not finite, from which no run could go on; empty where there is none.
std::string not_finite(const Archive& archive);

/// A folder of checkpoints, of which the last few are kept.
class Folder {
 public:
  /// Makes the folder where it is not there, and takes away what a run that died while it was saving left half written.
  Folder(std::filesystem::path path, std::int64_t keep);

  /// A usage error where there are checkpoints already: a run that begins anew would mix with them.
  void require_empty() const;

  /// Saves under the step's number, then drops the oldest beyond those to be kept, and those of later steps: the run went on from
  /// an earlier one because they are damaged.
  std::filesystem::path save(const Archive& archive, std::int64_t step) const;

  struct Found {
    std::filesystem::path path;
    Archive archive;
    std::string skipped;  // what was wrong with newer ones; empty: nothing
  };
  /// The newest that is whole. Nothing where there is none; a usage error where there are some but all are damaged.
  std::optional<Found> newest() const;

 private:
  std::vector<std::filesystem::path> files() const;  // oldest first

  std::filesystem::path path_;
  std::int64_t keep_;
};

}  // namespace baton::checkpoint
