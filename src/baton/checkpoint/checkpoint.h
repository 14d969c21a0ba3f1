#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "baton/archive/safetensors.h"
#include "baton/base/file.h"
#include "baton/exec/executor.h"
#include "baton/plan/plan.h"

/// The state from which a training run can be continued: weights and optimizer state under names that do not depend on how the
/// run was split, so a checkpoint of one strategy can be continued under another.
namespace baton::checkpoint {

using archive::ArchiveReader;
using archive::ArchiveWriter;
using archive::Metadata;
using archive::require_readable;
using archive::TensorInfo;
using archive::TensorReader;
using archive::Tensors;

/// The metadata of a checkpoint besides its tensors.
struct TrainingState {
  std::int64_t step = 0;  // steps done
  std::uint64_t seed = 0;
  std::string model;
  std::string optimizer;
  Metadata settings = {};  // the other settings of the run, by the name of the flag
};
Metadata to_metadata(const TrainingState& state);
/// A usage error names what a checkpoint of a training would say and this one does not.
TrainingState training_state_of(const TensorReader& source);

/// The tensors of a checkpoint of the plan: `block0.weight`, and for slot k of its optimizer state
/// `optimizer.k.block0.weight`. Names and layouts are those of model::stored_tensors, of states too. The state of a loss
/// scaler is `loss_scale`. Each replica keeps statistics of its own batches; the checkpoint holds those of the first replica.
Tensors tensors_of(const plan::Plan& plan);
/// The memory that saving or restoring takes: that of the largest tensor, and a little for copying.
Bytes room_for(const Tensors& tensors);

/// Puts each tensor together in `room` from the parts and pieces that the devices hold, in the order of their names. All ranks call
/// it. Stops at the first tensor with a NaN or an infinity, from which no run could continue, and returns its name.
std::string for_each_tensor(const plan::Plan& plan, const exec::Executor& executor, std::span<std::byte> room,
                            const std::function<void(std::span<const std::byte> tensor)>& visit);

/// Puts weights and state into an executor, whatever its strategy, and continues after the checkpoint's last step. A
/// usage error names what is missing or of another shape, before anything is changed. Tensors are read into `room`, one at a time.
TrainingState restore(const plan::Plan& plan, exec::Executor& executor, const TensorReader& source, std::span<std::byte> room);

/// True if a tensor of a checkpoint belongs to the model, not to the optimizer or the loss scaler.
inline bool is_weight(const std::string& tensor) { return !tensor.starts_with("optimizer.") && tensor != "loss_scale"; }

/// Puts only the weights into an executor, from a checkpoint or, if this executor has no optimizer, from another executor as it is
/// now. All ranks call it. A usage error names what is missing or of another shape, before anything is changed.
void restore_weights(const plan::Plan& plan, exec::Executor& executor, const TensorReader& source, std::span<std::byte> room);
void copy_weights(const plan::Plan& from, const exec::Executor& source, const plan::Plan& to, exec::Executor& target,
                  std::span<std::byte> room);

/// The file name of the best checkpoint of a folder, by the loss of evaluations.
inline constexpr const char* best_name = "best.safetensors";

struct FoundCheckpoint {
  std::filesystem::path path;
  std::shared_ptr<const ArchiveReader> archive;
  std::string skipped;  // what was wrong with newer ones; empty: nothing
};
/// The newest complete checkpoint in a folder; nullopt if there is none. A usage error if there are some but all are
/// damaged.
std::optional<FoundCheckpoint> newest_in(const std::filesystem::path& folder);

/// A folder of checkpoints, of which the last few are kept. One run at a time may use it: it holds a lock that ends with the
/// process.
class Folder {
 public:
  /// Makes the folder if it is not there, and removes files that a run which died while saving left half written. A usage error
  /// if another run uses it; a failure if nothing can be written there.
  Folder(std::filesystem::path path, std::int64_t keep);

  /// A usage error if there are checkpoints already: a new run would mix with them.
  void require_empty() const;

  /// The checkpoint of a step, to be written. It counts from `finish` on.
  std::unique_ptr<ArchiveWriter> begin(std::int64_t step, Tensors tensors, Metadata metadata) const;
  /// Gives it its name, then drops the oldest beyond those to be kept, and those of later steps: the run continued from an earlier
  /// one because they are damaged.
  std::filesystem::path finish(ArchiveWriter& writer) const;

  std::optional<FoundCheckpoint> newest() const { return newest_in(path_); }

 private:
  std::filesystem::path path_;
  std::int64_t keep_;
  FolderLock lock_;
};

}  // namespace baton::checkpoint
