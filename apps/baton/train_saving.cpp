#include "train_saving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/checkpoint/share.h"
#include "baton/data/tokenizer.h"
#include "commands.h"
#include "guard.h"
#include "signals.h"
#include "summary.h"
#include "terminal.h"
#include "train_log.h"

namespace baton::app {

namespace {

bool holds_checkpoints(const std::filesystem::path& folder) {
  std::error_code error;
  const auto entries = std::filesystem::directory_iterator(folder, error);
  return std::any_of(begin(entries), end(entries), [](const auto& entry) {
    const std::string name = entry.path().filename().string();
    return name.starts_with("step-") && name.ends_with(".safetensors");
  });
}

}  // namespace

Saving::Saving(const TrainWords& words, training::Training& run) : run_(run) {
  if (words.checkpoint.empty()) {
    if (words.resume || words.every || words.keep || words.keep_best) {
      throw usage_error("--resume, --every, --keep and --keep-best need a folder: give one with --checkpoint");
    }
    return;
  }
  every_ = words.every.value_or(0);
  saves_ = true;
  if (run.job().data() != nullptr || !words.report.empty()) {
    log_ = (std::filesystem::path(words.checkpoint) / "log.jsonl").string();
  }
  run.make_room_for_checkpoints();
  std::optional<checkpoint::FoundCheckpoint> found;
  ranks::on_rank_0(world(), [&] { found = open_folder(words); });
  share_last();
  ranks::Blob best = ranks::to_blob(fmt::format("{}", best_));
  world().broadcast(best, 0);
  best_ = std::strtod(ranks::to_text(best).c_str(), nullptr);
  if (!last_.empty()) {
    differences_ = run.restore(checkpoint::SharedReader(shared_world(), found ? found->archive : nullptr));
    saved_step_ = run.steps_before();
  }
}

std::optional<checkpoint::FoundCheckpoint> Saving::open_folder(const TrainWords& words) {
  if (const std::filesystem::path path(words.checkpoint); std::filesystem::is_regular_file(path)) {
    const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
    if (!holds_checkpoints(folder)) {
      throw usage_error("--checkpoint {} is a file, but train keeps its checkpoints in a folder: give a new one", words.checkpoint);
    }
    throw usage_error(
        "--checkpoint {} is a file, but train keeps its checkpoints in a folder: give {} with --resume to continue "
        "from the newest one there, or a new folder to begin in",
        words.checkpoint, folder);
  }
  folder_.emplace(words.checkpoint, words.keep.value_or(usual_keep));
  if (!words.resume) {
    folder_->require_empty();
  }
  std::optional<checkpoint::FoundCheckpoint> found = words.resume ? folder_->newest() : std::nullopt;
  keep_tokenizer(words.checkpoint, found.has_value());
  best_path_ = std::filesystem::path(words.checkpoint) / checkpoint::best_name;
  if (words.resume && words.keep_best && std::filesystem::exists(best_path_)) {
    read_best();
  }
  if (found) {
    if (!found->skipped.empty()) {
      fmt::print(stderr, "baton: {}; an older one is taken\n", printable(found->skipped));
    }
    last_ = found->path.string();
  }
  return found;
}

void Saving::keep_tokenizer(const std::string& folder, bool continues) const {
  const training::JobData* data = run_.job().data();
  const std::filesystem::path path = data::path_of_tokenizer(std::filesystem::path(folder) / "tokens.bin");
  if (data == nullptr) {
    return;
  }
  if (!data->training()->source().tokenizer()) {
    const bool tokens = data->training()->source().description().kind == data::ContentType::tokens;
    if (continues && tokens && std::filesystem::exists(path)) {
      throw usage_error(
          "{} was trained with a tokenizer, and nothing says that the tokens of --data are of the same: give --tokenizer {}",
          folder, path.string());
    }
    return;
  }
  const std::string own = data->training()->source().tokenizer()->serialized();
  if (continues && std::filesystem::exists(path) && data::read_tokenizer(path)->serialized() != own) {
    throw usage_error("{} was trained with another tokenizer than --data has: give --tokenizer {}", folder, path.string());
  }
  write_whole(path, own);
}

void Saving::read_best() {
  const checkpoint::Metadata metadata = checkpoint::ArchiveReader(best_path_).metadata();
  if (const auto loss = metadata.find(lab::key::eval_loss); loss != metadata.end()) {
    best_ = parse_number(loss->second, "the best checkpoint's eval_loss", -1e300, 1e300);
    const auto step = metadata.find("step");
    best_step_ = parse_integer(step == metadata.end() ? "" : step->second, "the best checkpoint's step", 0, std::int64_t{1} << 48);
  }
}

std::int64_t Saving::stretch(std::int64_t left) const {
  if (!saves_ || every_ == 0) {
    return left;
  }
  return std::min(left, every_ - done() % every_);
}

std::string Saving::save() {
  if (!saves_) {
    return "";
  }
  std::string broken = write([&] { return folder_->begin(done(), run_.tensors(), run_.metadata()); },
                             [&](checkpoint::ArchiveWriter& writer) { last_ = folder_->finish(writer).string(); });
  if (broken.empty()) {
    share_last();
    saved_step_ = done();
  }
  return broken;
}

bool Saving::save_if_best(const training::Evaluation& evaluation) {
  if (!saves_ || !std::isfinite(evaluation.loss) || evaluation.loss >= best_) {
    return false;
  }
  best_ = evaluation.loss;
  best_step_ = evaluation.step;
  checkpoint::Metadata metadata = run_.metadata();
  metadata[lab::key::eval_loss] = fmt::format("{}", evaluation.loss);
  return write([&] { return std::make_unique<checkpoint::ArchiveWriter>(best_path_, run_.tensors(), metadata); },
               [&](checkpoint::ArchiveWriter& writer) { writer.commit(); })
      .empty();
}

std::string Saving::best() const {
  return best_step_ < 0 ? "" : fmt::format("Best: step {} with loss {}, in {}", best_step_, loss_text(best_), best_path_.string());
}

std::string Saving::write(const std::function<std::unique_ptr<checkpoint::ArchiveWriter>()>& begin,
                          const std::function<void(checkpoint::ArchiveWriter&)>& finish) {
  const SaveGuard guard;
  std::unique_ptr<checkpoint::ArchiveWriter> writer;
  std::exception_ptr failed;  // on rank 0, which goes on for the others' sake
  const auto attempt = [&](const auto& action) {
    try {
      if (world().rank() == 0 && !failed) {
        action();
      }
    } catch (...) {
      failed = std::current_exception();
    }
  };
  attempt([&] { writer = begin(); });
  std::string broken = run_.save([&](std::span<const std::byte> tensor) { attempt([&] { writer->append(tensor); }); });
  if (broken.empty()) {
    ranks::on_rank_0(world(), [&] {
      if (failed) {
        std::rethrow_exception(failed);
      }
      finish(*writer);
    });
  }
  return broken;
}

void Saving::share_last() {
  ranks::Blob path = ranks::to_blob(last_);
  world().broadcast(path, 0);
  last_ = ranks::to_text(path);
}

}  // namespace baton::app
