#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::job {

/// A training job as text: from the command line, a spec file or an experiment.
struct JobWords {
  std::string model = "mlp:dim=1024,depth=2";
  std::string strategy;  // empty: single, or product if a layout is given
  std::string devices = "cpu";
  std::string batch = "64";
  std::string loss;  // empty: cross-entropy if the model gives scores, mse otherwise
  std::string label_smoothing = "0";
  std::string optimizer = "sgd";
  std::string lr;
  std::string momentum;
  std::string weight_decay;
  std::string decay = "all";
  std::string lr_schedule;
  std::string clip;
  std::string dp;
  std::string pp;
  std::string tp;
  std::string sp = "off";
  std::string zero;
  std::string schedule;  // a name, or the path of a schedule file
  std::string chunks;
  std::string precision = "fp32";
  std::string gradients = "same";
  std::string loss_scale;  // empty: dynamic for fp16, none otherwise
  std::string loss_scale_growth = "2000";
  std::string split;
  std::string balance = "even";
  std::string recompute = "none";
  std::string micro_batches;
  std::string bucket_mb = "25";
  std::string first_bucket_mb = "1";
  std::string link;
  std::string memory;
  std::string backend;  // empty: chosen by the devices
  std::string delay;    // separated by semicolons
  std::string seed = "0";
  std::string samples = "0";
  std::string data;  // empty: random numbers
  std::string tokenizer;
  std::string token_type;
  std::string normalize;
  std::string augment = "none";
  std::string cluster;   // empty: run on this machine, not simulated
  std::string software;  // of the simulated machine; empty: Baton's own
  std::string what_if;
  std::string fold = "auto";

  bool operator==(const JobWords&) const = default;
};

/// One option of a job.
struct JobField {
  std::string name;  // the flag without dashes
  std::string JobWords::*word;
  std::string type;  // what help shows for the value: N, NAME, SIZE, ...
  std::string help;
  std::vector<std::string> also = {};                          // other spellings: a letter, or a name known from other programs
  std::function<std::vector<std::string>()> values = nullptr;  // the allowed names, if the value is one of a few names
  bool repeatable = false;                                     // may be given several times; the values are joined by semicolons
};
/// All options, in the order of the help. Which backends there are, only those above know who run jobs.
const std::vector<JobField>& fields();
/// The names that some of them take.
std::vector<std::string> decay_names();
std::vector<std::string> fold_names();
std::vector<std::string> gradient_names();
std::vector<std::string> schedule_names();
std::vector<std::string> sp_names();

/// The name of a cluster that means this machine, and whether a name is that one.
constexpr std::string_view this_machine = "machine";
bool is_this_machine(std::string_view cluster);
/// Whether the job is simulated on another machine than this.
bool is_imagined(const JobWords& words);

/// Whether the word for a schedule is the path of a file, not the name of a known schedule.
bool is_schedule_file(const std::string& word);

/// The field with this spelling, in which dashes and underscores are the same; nullptr if there is none.
const JobField* find_field(const std::vector<JobField>& fields, std::string_view name);
/// Sets a field by any of its spellings; a usage error lists the names.
void set_word(JobWords& words, std::string_view name, std::string value);

/// The words with those that the software profile they name has for the ones that were left as they are usually.
JobWords with_software(JobWords words);

}  // namespace baton::job
