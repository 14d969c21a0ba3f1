#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "baton/checkpoint/checkpoint.h"
#include "baton/training/training.h"
#include "train_words.h"

namespace baton::app {

/// Saves now and then if the user asked for it. All ranks take part; rank 0 alone reads and writes files.
class Saving {
 public:
  Saving(const TrainWords& words, training::Training& run);

  /// The number of steps, of `left`, to run before something is saved.
  std::int64_t stretch(std::int64_t left) const;
  /// True if something is to be saved after this many steps of all.
  bool due(std::int64_t done, std::int64_t steps) const { return saves_ && (done == steps || (every_ > 0 && done % every_ == 0)); }
  /// Returns what is not finite, in which case nothing is saved; empty: all is.
  std::string save();
  /// Keeps the weights as the best ones if no evaluation before had a lower loss; returns whether it did.
  bool save_if_best(const training::Evaluation& evaluation);

  /// The best evaluation and the place of its weights, at rank 0; empty if nothing was kept as the best.
  std::string best() const;
  /// The file next to the checkpoints that the lines of all runs are kept in; empty if there is none.
  std::string log() const { return log_; }
  /// The last one that was saved or continued from; empty if there is none.
  const std::string& last() const { return last_; }
  /// The steps done by then.
  std::int64_t saved_step() const { return saved_step_; }
  /// Sentences on the settings that differ from those of the run that is continued.
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  /// Opens the folder at rank 0, and finds the newest checkpoint if the training is to continue.
  std::optional<checkpoint::FoundCheckpoint> open_folder(const TrainWords& words);
  /// Keeps the tokenizer of the data next to the checkpoints; a usage error if one that is continued had another.
  void keep_tokenizer(const std::string& folder, bool continues) const;
  /// The loss and the step of the best checkpoint of a training that is continued.
  void read_best();
  /// Writes all tensors with the writer that rank 0 begins, and lets it finish; returns what is not finite, in which case it does
  /// not.
  std::string write(const std::function<std::unique_ptr<checkpoint::ArchiveWriter>()>& begin,
                    const std::function<void(checkpoint::ArchiveWriter&)>& finish);
  /// Rank 0 names the checkpoint to the others.
  void share_last();

  std::int64_t done() const { return run_.steps_before() + static_cast<std::int64_t>(run_.losses().size()); }

  training::Training& run_;
  bool saves_ = false;
  std::optional<checkpoint::Folder> folder_;  // at rank 0
  std::int64_t every_ = 0;
  std::string last_;
  std::int64_t saved_step_ = 0;
  std::vector<std::string> differences_;
  std::string log_;
  std::filesystem::path best_path_;
  double best_ = std::numeric_limits<double>::infinity();  // the lowest loss of an evaluation, at rank 0
  std::int64_t best_step_ = -1;                            // its step; -1: there is none
};

}  // namespace baton::app
