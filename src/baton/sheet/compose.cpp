#include "baton/sheet/compose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <regex>
#include <set>

#include "baton/base/error.h"
#include "baton/base/units.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/stack_size.h"
#include "baton/report/report.h"
#include "baton/sheet/twins.h"

namespace baton::sheet {
namespace {

using lab::Json;
using lab::Record;
namespace key = lab::key;
using lab::replaced;

bool is_measured(const Record& row) { return !row.has(key::reason); }

double largest(const std::vector<Record>& rows, const std::string& column) {
  double most = 0;
  for (const Record& row : rows) {
    most = std::max(most, std::abs(lab::number_in(row, column).value_or(0)));
  }
  return most;
}

/// The least of the numbers that are not 0; 0 if there are none.
double smallest(const std::vector<Record>& rows, const std::string& column) {
  double least = 0;
  for (const Record& row : rows) {
    if (const double size = std::abs(lab::number_in(row, column).value_or(0)); size != 0) {
      least = least == 0 ? size : std::min(least, size);
    }
  }
  return least;
}

/// A column of times or bytes in one unit.
struct ColumnUnit {
  double scale = 0;  // 0: each cell as in the report
  std::string name;
};

ColumnUnit unit_of(lab::Format format, double most) {
  if (format == lab::Format::time) {
    return most >= 1e9 ? ColumnUnit{1e9, "s"} : most >= 1e6 ? ColumnUnit{1e6, "ms"} : ColumnUnit{1e3, "µs"};
  }
  if (format == lab::Format::bytes) {
    return most >= 0x1p30   ? ColumnUnit{0x1p30, "GiB"}
           : most >= 0x1p20 ? ColumnUnit{0x1p20, "MiB"}
           : most >= 0x1p10 ? ColumnUnit{0x1p10, "KiB"}
                            : ColumnUnit{1, "bytes"};
  }
  return {};
}

/// Three significant figures, and all figures before the point.
std::string number_in(double value) {
  const double size = std::abs(value);
  const int places = size == 0        ? 0
                     : size >= 99.95  ? 0
                     : size >= 9.995  ? 1
                     : size >= 0.9995 ? 2
                                      : std::min(6, 2 - static_cast<int>(std::floor(std::log10(size))));
  return fmt::format("{:.{}f}", value, places);
}

std::string list_of(const std::vector<Record>& rows, const std::string& column) {
  std::string out;
  for (const std::string& word : lab::words_of(rows, column)) {
    out += (out.empty() ? "" : ", ") + word;
  }
  return out;
}

std::vector<Record> measured_rows(const lab::Result& result) {
  std::vector<Record> rows = result.rows;
  std::erase_if(rows, [](const Record& row) { return !is_measured(row); });
  return rows;
}

/// "MSE", "MSE and cross-entropy": the losses that the rows were trained with.
std::string losses_of(const std::vector<Record>& rows) {
  std::vector<std::string> losses;
  for (const Record& row : rows) {
    const std::string said = row.value(key::trained, {}).value(key::loss, "mse");
    const std::string loss = said == "mse" ? "MSE" : replaced(said, "_", "-");
    if (std::find(losses.begin(), losses.end(), loss) == losses.end()) {
      losses.push_back(loss);
    }
  }
  return lab::listing(losses);
}

/// "mlp:dim=1024,depth=2, global batch 64": the models that the rows of an experiment trained.
std::string trained(const lab::Result& result) {
  const std::vector<Record> rows = measured_rows(result);
  if (rows.empty()) {
    return "nothing was measured";
  }
  const std::string& id = result.experiment->id;
  if (id == "matrix-power") {
    return fmt::format("A and B {0} × {0} in float32, n = {1}", list_of(rows, key::size), list_of(rows, key::power));
  }
  std::string model;
  const auto has = [&](const std::string& column) { return rows.front().find(column) != nullptr; };
  if (id == "first-split") {
    model = "Linear(1000, 2000) + ReLU and Linear(2000, 1000) + ReLU";
  } else if (has(key::case_)) {
    model = fmt::format("Linear + ReLU blocks, DIM x DEPTH {}", list_of(rows, key::case_));
  } else if (has(key::dim)) {
    model = fmt::format("Linear + ReLU blocks, DIM {}, DEPTH {}", list_of(rows, key::dim), list_of(rows, key::depth));
  } else if (has(key::model)) {
    model = list_of(rows, key::model);
  }
  const job::JobSpec usual;
  for (const lab::Axis& axis : result.experiment->axes) {
    if (model.empty() && axis.name == key::model.name) {  // rows that are of tasks do not repeat it
      model = lab::word_of((result.preset == lab::Preset::full ? axis.full : axis.quick).front());
    }
  }
  if (const std::size_t dim = model.find("dim="); model.starts_with("mlp:dim=") && model.find(' ') == std::string::npos) {
    const std::size_t comma = model.find(",depth=");
    model = fmt::format("Linear + ReLU blocks, DIM {}, DEPTH {}", model.substr(dim + 4, comma - dim - 4), model.substr(comma + 7));
  }
  const std::string batch = has(key::global_batch) ? list_of(rows, key::global_batch)
                            : has(key::batch)      ? list_of(rows, key::batch)
                                                   : fmt::format("{}", usual.batch);
  return fmt::format("{}; global batch {}; SGD, learning rate 0.01; {}; {} loss; seed {}", model, batch,
                     strategy::to_text(usual.precision), losses_of(rows),
                     id == "timing" ? "0, and 1 in the third run" : fmt::format("{}", usual.seed));
}

std::string values_text(const std::vector<job::FieldValue>& values) {
  std::string text;
  for (const job::FieldValue& value : values) {
    text += (text.empty() ? "" : ", ") + lab::word_of(value);
  }
  return text;
}

/// Axes of which the rows have fewer or smaller values than the sheet's own, in words.
std::vector<std::string> reductions(const lab::Result& result) {
  std::vector<std::string> out;
  for (const lab::Axis& axis : result.experiment->axes) {
    if (result.preset == lab::Preset::quick && axis.quick != axis.full) {
      out.push_back(fmt::format("{} {} instead of {}", axis.name, values_text(axis.quick), values_text(axis.full)));
    }
  }
  return out;
}

/// ", dim 512": of two results of different sizes those of one, as far as its table does not show them.
std::string sizes_of(const lab::Result& result, const lab::Result& other, const std::vector<std::string>& columns) {
  std::string sizes;
  for (const lab::Axis& axis : result.experiment->axes) {
    const bool shown = std::find(columns.begin(), columns.end(), axis.name) != columns.end();
    if (result.preset != other.preset && axis.quick != axis.full && !shown) {
      sizes += fmt::format(", {} {}", axis.name, values_text(result.preset == lab::Preset::quick ? axis.quick : axis.full));
    }
  }
  return sizes;
}

/// The result of an experiment, if the source has it.
const lab::Result* find_result(const ResultSet& source, const std::string& id) {
  const auto found = source.results.find(id);
  return found == source.results.end() ? nullptr : &found->second;
}

/// True if a table of the rows has the column. A simulated step is always the same: it has no standard deviation.
bool has_column(const std::vector<Record>& rows, const std::string& column) {
  const bool filled = std::any_of(rows.begin(), rows.end(), [&](const Record& row) {
    const Json* value = row.find(column);
    return value != nullptr && !lab::word_of(*value).empty() && !value->is_null();
  });
  return filled && (column != key::std_ns.name || largest(rows, column) > 0);
}

/// True if the second source answers a question of the task that the first does not: then its table is shown too.
bool answered_beside(const SheetTask& task, const std::string& experiment, const Evidence& evidence) {
  const lab::Result* beside = find_result(evidence.beside, experiment);
  return beside != nullptr && std::any_of(task.questions.begin(), task.questions.end(), [&](const AskedOn& question) {
           const bool answers = std::any_of(beside->answers.begin(), beside->answers.end(), [&](const lab::Answer& answer) {
             return answer.id == question.id && !answer.text.empty();
           });
           return question.answer.empty() && answers && find_answer(evidence.first, question.id).empty();
         });
}

/// The constructor that spreads layers, cut out of the script that has the class.
std::string split_constructor(const std::string& name) {
  job::JobSpec spec;
  spec.strategy = "layers";
  spec.devices = "cuda";
  spec.model = "mlp:dim=1024,depth=20";
  for (const std::string& script : {training_twin(spec, {}), four_way_split_twin("", 8, "")}) {
    if (const std::size_t begin = script.find("class " + name); begin != std::string::npos) {
      const std::size_t end = std::min(script.find("        self.calls", begin), script.find("\n    def forward", begin));
      return script.substr(begin, end - begin);
    }
  }
  check(false, "no script has a class {}", name);
  return "";
}

/// The result's plots, at most this many; `origin` says where they come from if there are others next to them.
void add_pictures(Pictures& pictures, const lab::Result& result, const std::vector<lab::Plot>& plots, std::size_t most,
                  const std::string& origin) {
  const std::size_t before = pictures.row.size();
  const std::vector<Record> rows = measured_rows(result);
  for (const lab::Plot& plot : plots) {
    // Bars per device have names too long for half a page.
    const bool own = plot.kind == lab::Plot::Type::line || &plots != &result.experiment->plots;
    Picture picture = draw(plot, own ? lab::points_of(plot, rows) : rows, origin);
    if (!picture.marks.empty() && pictures.row.size() - before < most) {
      pictures.row.push_back(std::move(picture));
    }
  }
}

std::string beside_label(const ResultSet& source) {
  return fmt::format("{} ({}): ", source.simulated ? "Simulated" : "Measured", source.devices);
}

/// The sentences of a second answer that say something else than the first.
std::string what_differs(const std::string& second, const std::string& first) {
  std::string out;
  for (std::size_t begin = 0; begin < second.size();) {
    std::size_t end = second.find(". ", begin);
    end = end == std::string::npos ? second.size() : end + 1;
    const std::string sentence = second.substr(begin, end - begin);
    if (first.find(sentence) == std::string::npos) {
      out += (out.empty() ? "" : " ") + sentence;
    }
    begin = end + 1;
  }
  return out;
}

/// The numbers of a text with their units, as "1.46" and "256 KiB".
std::set<std::string> numbers_of(const std::string& text) {
  static const std::regex number(R"(\d+(?:\.\d+)?(?:e[+-]?\d+)?(?: (?:%|[a-zµ]{1,2}\b|[KMGT]iB|B\b|[kMGT]?FLOP|GB/s))?)");
  return {std::sregex_token_iterator(text.begin(), text.end(), number), std::sregex_token_iterator()};
}

/// True if the differing sentences of a second answer say something by themselves. That takes a number that the first has not, and
/// two if the sentence that answers the question is the same: one alone is a fragment, which only tells that sizes differ.
bool speaks_for_itself(const std::string& differs, const std::string& second, const std::string& first) {
  const std::set<std::string> said = numbers_of(first);
  const std::set<std::string> own = numbers_of(differs);
  const auto count = std::count_if(own.begin(), own.end(), [&](const std::string& number) { return !said.contains(number); });
  return count > (second.starts_with(differs.substr(0, differs.find(". "))) ? 0 : 1);
}

/// As many of a text's first sentences as have at most this many words.
std::string first_sentences(const std::string& text, std::size_t words) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find(". ", begin);
    end = end == std::string::npos ? text.size() : end + 1;
    const std::string longer = text.substr(0, end);
    if (words_in(longer) > words) {
      break;
    }
    out = longer;
    begin = end + 1;
  }
  return out;
}

/// A text within this many words: the answer comes first, so the last sentences are dropped. The first one stays.
std::string shortened(const std::string& text, std::size_t words) {
  const std::string kept = words_in(text) <= words ? text : first_sentences(text, words);
  return kept.empty() ? text.substr(0, std::min(text.size(), text.find(". ") + 1)) : kept;
}

/// The part of an answer on the case at hand, without the general part before it.
std::string of_this_case(const std::string& answer) {
  const std::size_t at = answer.find(": here ");
  return at == std::string::npos ? answer : answer.substr(at + 7);
}

/// Computing and exposed communication as parts of the step, per case on the devices that the answers are about.
lab::Plot shares_plot() {
  return {.kind = lab::Plot::Type::stacked,
          .title = "Computing against communication",
          .x = key::where,
          .y = key::rest_share,
          .x_title = "case and devices",
          .y_title = "share of the step",
          .y_format = lab::Format::percent,
          .parts = {key::rest_share, key::exposed_share},
          .part_titles = {"computing and the rest", "exposed communication and waiting"},
          .x_format = lab::Format::text,
          .points = [](const std::vector<Record>& rows) {
            std::vector<Record> points;
            for (const Record& row : lab::headline_rows(rows)) {
              if (row.has(key::exposed_share)) {
                const double exposed = row[key::exposed_share];
                points.push_back({key::where(fmt::format("{} on {}", lab::text(row, key::case_), lab::text(row, key::devices))),
                                  key::rest_share(1 - exposed), key::exposed_share(exposed)});
              }
            }
            return points;
          }};
}

/// The numbers of devices that experiments ask for and the source does not have.
std::set<std::int64_t> missing_devices(const ResultSet& source) {
  std::set<std::int64_t> missing;
  for (const auto& [id, result] : source.results) {
    for (const lab::Axis& axis : result.experiment->axes) {
      for (const job::FieldValue& count : axis.name != key::devices.name       ? std::vector<job::FieldValue>()
                                          : result.preset == lab::Preset::full ? axis.full
                                                                               : axis.quick) {
        if (const auto* number = std::get_if<std::int64_t>(&count);
            source.most_devices > 0 && number != nullptr && *number > source.most_devices) {
          missing.insert(*number);
        }
      }
    }
  }
  return missing;
}

/// True if the task's noise was measured on this machine, because its experiment was simulated.
bool noise_beside(const SheetTask& task, const std::string& experiment, const Evidence& evidence) {
  return !task.noise_columns.empty() && evidence.first.simulated && !evidence.beside.simulated &&
         find_result(evidence.first, experiment) != nullptr && find_result(evidence.beside, experiment) != nullptr;
}

/// "the std of step times is 3.1 % of the median under dp, 2.0 % under ddp, on 2 devices": on those that the answers are about.
std::string noise_text(const SheetTask& task, const Evidence& evidence) {
  for (const std::string& id : task.experiments) {
    if (!noise_beside(task, id, evidence)) {
      continue;
    }
    const std::vector<Record> rows = lab::headline_rows(measured_rows(*find_result(evidence.beside, id)));
    std::vector<std::string> shares;
    for (const Record& row : rows) {
      shares.push_back(fmt::format("{}{} under {}",
                                   lab::percent(lab::number(row, key::std_ns) / lab::number(row, key::time_per_step_ns)),
                                   shares.empty() ? " of the median" : "", lab::text(row, key::strategy)));
    }
    if (!rows.empty()) {
      return fmt::format("the std of step times is {}, on {}{}.", lab::listing(shares), lab::devices_text(rows[0][key::devices]),
                         rows[0].value(key::oversubscribed, false) ? "*" : "");
    }
  }
  return "";
}

/// "5+5+4+4": blocks in even runs, the longer ones first.
std::string even_runs(std::int64_t blocks, std::int64_t devices) {
  std::string runs;
  for (std::int64_t d = 0; d < devices; ++d) {
    runs += fmt::format("{}{}", d == 0 ? "" : "+", blocks / devices + (d < blocks % devices ? 1 : 0));
  }
  return runs;
}

/// The splits of models over as many devices as the task asks for, if the source has fewer: a split needs no devices.
std::string split_without_devices(const SheetTask& task, const ResultSet& source) {
  if (source.most_devices == 0 || source.most_devices >= task.split_over) {
    return "";
  }
  std::vector<std::string> models;
  for (const std::string& id : task.experiments) {
    const lab::Result* result = find_result(source, id);
    const std::vector<Record> rows = result == nullptr ? std::vector<Record>() : measured_rows(*result);
    for (const std::string& model : lab::values_of(rows, key::model)) {
      std::int64_t blocks = 0;
      for (const std::int64_t count : lab::rows_with(rows, key::model, model)[0].value(key::blocks_each, {})) {
        blocks += count;
      }
      const std::string& name = model;
      models.push_back(
          fmt::format("{} of {}", even_runs(blocks, task.split_over),
                      name.starts_with("resnet:") ? "ResNet-" + name.substr(7, name.find(',') - 7) : "`" + name + "`"));
    }
  }
  return models.empty() ? ""
                        : fmt::format("{} devices would get these blocks: {}; {} has {}, on which this was run. ", task.split_over,
                                      lab::listing(models), source.devices, source.most_devices);
}

/// The answers of the first source to the questions of a task, within the limit of all of them together: the longest is shortened
/// first.
std::vector<std::string> first_answers(const SheetTask& task, const ResultSet& source) {
  std::vector<std::string> answers;
  std::size_t words = 0;
  const std::string split = split_without_devices(task, source);
  for (const AskedOn& question : task.questions) {
    const std::string answer = find_answer(source, question.id, most_words_of_answer - words_in(split));
    answers.push_back(answer.empty() ? "" : split + answer);
    words += words_in(answers.back());
  }
  while (task.most_words > 0 && words > task.most_words) {
    std::string& longest = *std::max_element(answers.begin(), answers.end(),
                                             [](const std::string& a, const std::string& b) { return words_in(a) < words_in(b); });
    const std::size_t before = words_in(longest);
    longest = shortened(longest, before - 1);
    if (words_in(longest) == before) {
      break;  // one sentence each
    }
    words -= before - words_in(longest);
  }
  return answers;
}

/// The parts of a simulated hand-in that were measured on this machine, and why.
std::string measured_beside_text(const std::vector<SheetTask>& tasks, const Evidence& evidence) {
  std::set<std::string> noisy;  // experiments of which the noise is measured
  for (const SheetTask& task : tasks) {
    for (const std::string& id : task.experiments) {
      if (noise_beside(task, id, evidence)) {
        noisy.insert(id);
      }
    }
  }
  bool warm_up = false;
  bool losses = false;
  bool unfit = false;
  bool too_few = false;
  for (const auto& [id, result] : evidence.beside.results) {
    const lab::Result* first = find_result(evidence.first, id);
    if (result.experiment->by_losses || first == nullptr) {
      warm_up = true;
    } else if (measured_rows(*first).size() < first->rows.size()) {
      unfit = true;
    } else if (evidence.first.most_devices > 0 &&
               !missing_devices({.most_devices = evidence.first.most_devices, .results = {{id, *first}}}).empty() &&
               !noisy.contains(id)) {
      too_few = true;
    } else if (!noisy.contains(id)) {
      losses = true;
    }
  }
  std::vector<std::string> lacking;
  if (warm_up || losses) {
    lacking.emplace_back("losses");
  }
  if (warm_up) {
    lacking.emplace_back("a warm-up");
  }
  if (!noisy.empty()) {
    lacking.emplace_back("noise");
  }
  std::vector<std::string> what;
  if (!lacking.empty()) {
    what.push_back(fmt::format("{}, which a simulation does not have", lab::listing(lacking)));
  }
  if (unfit) {
    what.emplace_back("runs that do not fit on these devices");
  }
  if (too_few) {
    what.emplace_back("runs that need more devices");
  }
  return fmt::format(" Measured on {}: {}.", evidence.beside.summary, fmt::join(what, "; "));
}

/// The programs of a task, as Markdown lists them.
std::string code_list(const SheetTask& task) {
  std::string files;
  for (const std::string& program : task.programs) {
    files += fmt::format("{}`code/{}`", files.empty() ? "" : ", ", program);
  }
  return files;
}

/// The models that were trained for a task, the devices and the command: a line per experiment and source that is used.
std::vector<Paragraph> training_lines(const SheetTask& task, const Evidence& evidence, const std::string& files) {
  std::vector<Paragraph> lines;
  for (const std::string& id : task.experiments) {
    for (const ResultSet* from : {&evidence.first, &evidence.beside}) {
      const ResultSet& source = *from;
      const lab::Result* result = find_result(source, id);
      const bool second = from == &evidence.beside && find_result(evidence.first, id) != nullptr;
      if (result == nullptr ||
          (second && (source.simulated || !(answered_beside(task, id, evidence) || noise_beside(task, id, evidence)))) ||
          (measured_rows(*result).empty() && find_result(evidence.beside, id) != nullptr)) {
        continue;
      }
      const std::vector<Record> rows = measured_rows(*result);
      const bool counted = !rows.empty() && rows.front().has(key::devices);
      lines.push_back(
          {fmt::format("{}: {}. Devices: {}{}{}. Command: `{}`.{}", id == "matrix-power" ? "Computed" : "Trained", trained(*result),
                       counted ? list_of(rows, key::devices) + " × " : "", source.devices, source.simulated ? ", simulated" : "",
                       result->command, files.empty() ? "" : " Code: " + files + "."),
           true});
    }
  }
  return lines;
}

/// Adds the reasons for which points of an experiment were not measured.
void add_reasons(Section& section, const std::string& id, const ResultSet& source) {
  std::set<std::string> reasons;
  if (const lab::Result* result = find_result(source, id)) {
    for (const Record& row : result->rows) {
      if (row.has(key::reason)) {
        reasons.insert(row[key::reason]);
      }
    }
  }
  for (const std::string& reason : reasons) {
    section.blocks.emplace_back(Paragraph{fmt::format("Not {}: {}.", source.simulated ? "simulated" : "measured", reason)});
  }
}

/// The tables and pictures of a task.
struct Shown {
  Grids grids;
  Pictures pictures;
  std::set<std::string> columns;  // that a table shows
};

/// Adds those of one result. `other`: that of the other source, if both are shown.
void show_result(Shown& shown, const SheetTask& task, const lab::Result& result, const ResultSet& source,
                 const lab::Result* other) {
  if (!task.columns.empty()) {
    shown.grids.row.push_back(grid_of(result, task.columns,
                                      other == nullptr ? ""
                                                       : fmt::format("{} ({}){}", source.simulated ? "Simulated" : "Measured",
                                                                     source.devices, sizes_of(result, *other, task.columns))));
  }
  const std::vector<Record> rows = measured_rows(result);
  for (const std::vector<std::string>* keys : {&task.columns, &task.gpu_columns}) {
    for (const std::string& key : *keys) {
      if (has_column(rows, key)) {
        shown.columns.insert(key);
      }
    }
  }
  if (std::any_of(rows.begin(), rows.end(), [](const Record& row) { return row.has(key::gpu_memory_bytes); })) {
    shown.grids.row.push_back(grid_of(result, task.gpu_columns, "As nvidia-smi reports it"));
  }
  const std::vector<lab::Plot> shares{shares_plot()};
  add_pictures(shown.pictures, result, task.shares_of_step ? shares : result.experiment->plots,
               other == nullptr ? task.plots : std::min<std::size_t>(1, task.plots),
               other == nullptr   ? ""
               : source.simulated ? "simulated"
                                  : "measured");
}

/// The tables and pictures of a task. An experiment that was measured only for its losses has no table.
Shown shown_of(const SheetTask& task, const Evidence& evidence) {
  Shown shown;
  for (const std::string& id : task.experiments) {
    const lab::Result* first = find_result(evidence.first, id);
    const lab::Result* beside = first == nullptr || evidence.beside.simulated || answered_beside(task, id, evidence)
                                    ? find_result(evidence.beside, id)
                                    : nullptr;
    const bool both = first != nullptr && beside != nullptr && !measured_rows(*first).empty();
    for (const auto& [result, source] : {std::pair(first, &evidence.first), {beside, &evidence.beside}}) {
      if (result != nullptr && !measured_rows(*result).empty()) {
        show_result(shown, task, *result, *source, !both ? nullptr : result == first ? beside : first);
      }
    }
    if (beside == nullptr && noise_beside(task, id, evidence)) {
      shown.grids.row.push_back(grid_of(*find_result(evidence.beside, id), task.noise_columns,
                                        fmt::format("Measured ({}), for the noise", evidence.beside.devices)));
      shown.columns.insert(task.noise_columns.begin(), task.noise_columns.end());
    }
  }
  return shown;
}

/// The bytes of all parameters that a task trained, where most were; 0 if its records do not say so.
double most_parameter_bytes(const SheetTask& task, const Evidence& evidence) {
  double most = 0;
  for (const std::string& id : task.experiments) {
    for (const ResultSet* source : {&evidence.first, &evidence.beside}) {
      const lab::Result* result = find_result(*source, id);
      for (const Record& row : result == nullptr ? std::vector<Record>{} : measured_rows(*result)) {
        most = std::max(most, lab::number(row.value(lab::key::trained, {}), lab::key::parameter_bytes, 0.0));
      }
    }
  }
  return most;
}

/// Explains the columns that are shown.
std::string reading_of(const SheetTask& task, const std::set<std::string>& columns, const Evidence& evidence) {
  constexpr std::string_view parameters = "{parameters}";
  std::string reading;
  for (const Reading& one : task.reading) {
    if (!one.column.empty() && columns.contains(one.column) == one.if_missing) {
      continue;
    }
    std::string text = one.text;
    if (const std::size_t at = text.find(parameters); at != std::string::npos) {
      const double bytes = most_parameter_bytes(task, evidence);
      if (bytes <= 0) {
        continue;
      }
      text.replace(at, parameters.size(), to_text(Bytes(std::llround(bytes))));
    }
    reading += (reading.empty() ? "" : " ") + text;
  }
  return reading;
}

/// The number of words that a second source may use if the answers of a task have a limit together: the words that the first
/// leaves.
std::size_t words_for_second(const SheetTask& task, const std::vector<std::string>& answers) {
  const std::size_t words = std::accumulate(answers.begin(), answers.end(), std::size_t{0},
                                            [](std::size_t sum, const std::string& answer) { return sum + words_in(answer); });
  return task.most_words == 0 ? std::numeric_limits<std::size_t>::max() : task.most_words > words ? task.most_words - words : 0;
}

/// The question with the answer that the sources give. `first` is the first source's, and `words_left` the number of words that the
/// second may use.
Asked answered(const AskedOn& question, const std::string& first, const SheetTask& task, const Evidence& evidence,
               std::size_t& words_left) {
  Asked asked{question.label, question.text, question.answer};
  const std::string from = fmt::format(" ({} on {}.)", evidence.beside.simulated ? "Simulated" : "Measured",
                                       evidence.beside.devices);
  const std::string beside = find_answer(evidence.beside, question.id, most_words_of_answer - words_in(from));
  asked.answer = !first.empty() ? first : !beside.empty() ? beside + from : "The devices at hand cannot show this.";
  if (!first.empty() && !beside.empty() && evidence.beside.simulated) {
    const std::string label = beside_label(evidence.beside);
    const std::size_t of_label = words_in(label);
    const std::string differs = first_sentences(what_differs(beside, replaced(first, "*", "")),
                                                words_left > of_label ? words_left - of_label : 0);
    asked.beside = speaks_for_itself(differs, beside, first) ? label + differs : "";
    words_left -= task.most_words == 0 ? 0 : words_in(asked.beside);
  }
  return asked;
}

/// The questions of a task with their answers. `below`: the lines on trainings, placed after the first answer of our own that an
/// experiment of this task adds to.
void add_questions(Section& section, const SheetTask& task, const Evidence& evidence, std::vector<Paragraph> below) {
  const std::vector<std::string> answers = first_answers(task, evidence.first);
  std::size_t words_left = words_for_second(task, answers);
  for (std::size_t q = 0; q < task.questions.size(); ++q) {
    const AskedOn& question = task.questions[q];
    const std::string& first = answers[q];
    if (question.answer.empty()) {
      Asked asked = answered(question, first, task, evidence, words_left);
      if (const std::string noise = noise_text(task, evidence); q == 0 && !noise.empty()) {
        asked.beside = beside_label(evidence.beside) + noise;
      }
      section.blocks.emplace_back(std::move(asked));
      continue;
    }
    // An answer of our own is followed by the addition of an experiment of this task.
    Asked asked{question.label, question.text, question.answer};
    const bool adds = !first.empty() && !task.experiments.empty();
    if (adds) {
      asked.beside = fmt::format("{}: {}", evidence.first.simulated ? "Simulated" : "Measured", of_this_case(first));
    }
    section.blocks.emplace_back(std::move(asked));
    if (adds) {
      for (Paragraph& line : below) {
        section.blocks.emplace_back(std::move(line));
      }
      below.clear();
    }
  }
}

Section section_of(const SheetTask& task, const Evidence& evidence) {
  Section section{task.heading, {}};
  const std::string files = code_list(task);
  if (!task.note.empty()) {
    section.blocks.emplace_back(Paragraph{task.note});
  }
  // If one question of several is of an experiment, and no table is, the lines on trainings are below that question.
  std::vector<Paragraph> below = training_lines(task, evidence, files);
  if (!task.columns.empty()) {
    for (Paragraph& line : below) {
      section.blocks.emplace_back(std::move(line));
    }
    below.clear();
  }
  for (const std::string& id : task.experiments) {
    add_reasons(section, id, evidence.first);
  }
  if (task.experiments.empty() && !files.empty()) {
    section.blocks.emplace_back(Paragraph{"Code: " + files + ".", true});
  }
  // The table comes before the answers that refer to it.
  Shown shown = shown_of(task, evidence);
  const bool has_table = !shown.grids.row.empty();
  if (has_table) {
    section.blocks.emplace_back(std::move(shown.grids));
  }
  if (!shown.pictures.row.empty()) {
    section.blocks.emplace_back(std::move(shown.pictures));
  }
  if (const std::string reading = reading_of(task, shown.columns, evidence); has_table && !reading.empty()) {
    section.blocks.emplace_back(Paragraph{reading, true});
  }
  add_questions(section, task, evidence, std::move(below));
  if (!task.listed_class.empty()) {
    section.blocks.emplace_back(
        Listing{"The `__init__` of the PyTorch script, which finds all GPUs there are:", split_constructor(task.listed_class)});
  }
  return section;
}

}  // namespace

std::string find_answer(const ResultSet& source, const std::string& id, std::size_t words) {
  for (const auto& [experiment, result] : source.results) {
    for (const lab::Answer& answer : result.answers) {
      if (answer.id == id && !answer.text.empty()) {
        // The note at the top says once what each answer would repeat.
        const std::string text = replaced(answer.text, " (devices shared cores)", "*");
        return shortened(source.simulated ? replaced(text, " (simulated)", "") : text, words);
      }
    }
  }
  return "";
}

bool is_reduced(const lab::Result& result) { return !reductions(result).empty(); }

bool oversubscribed(const lab::Result& result) {
  return std::any_of(result.rows.begin(), result.rows.end(),
                     [](const Record& row) { return row.value(key::oversubscribed, false); });
}

std::string job_of(const std::string& experiment, const lab::Point& point) {
  const auto word = [&](const std::string& axis, const std::string& usual) {
    return point.contains(axis) ? lab::word_of(point[axis]) : usual;
  };
  const job::JobSpec usual;
  if (experiment == "split" || experiment == "depth" || experiment == "all-devices" || experiment == "transfers") {
    return fmt::format("layers of {}x{} on {}", word(key::dim, ""), word(key::depth, ""), word(key::devices, ""));
  }
  std::string model = word(key::model, usual.model.text());
  if (experiment == "comm-vs-compute") {
    model = word(key::case_, "");
    if (const std::optional<lab::StackSize> size = lab::StackSize::parse(model)) {
      model = size->model().text();
    }
  }
  const std::string delay = word(key::delay_ms, "0");
  const bool delayed = delay != "0" && delay != "0.0";
  if (experiment == "strong-scaling" || experiment == "comm-vs-compute" || experiment == "batch-scaling" ||
      ((experiment == "delay" || experiment == "imbalance") && !delayed) ||
      (experiment == "dp-vs-ddp" && word(key::strategy, "") == "ddp")) {
    return fmt::format("ddp of {}, batch {}, on {}", model, word(key::batch, fmt::format("{}", usual.batch)),
                       word(key::devices, ""));
  }
  return "";
}

DataTable grid_of(const lab::Result& result, const std::vector<std::string>& keys, std::string caption) {
  DataTable grid{std::move(caption), {}, {}, {}};
  const std::vector<Record> rows = measured_rows(result);
  grid.rows.resize(rows.size());
  for (const std::string& key : keys) {
    const auto& columns = result.experiment->columns;
    const auto column = std::find_if(columns.begin(), columns.end(), [&](const lab::Column& one) { return one.key == key; });
    if (column == columns.end() || !has_column(rows, key)) {
      continue;
    }
    const double most = largest(rows, key);
    // If values are far apart, the unit is the largest in which the smallest has no more than three zeros after the point.
    const double least = smallest(rows, key);
    const ColumnUnit unit = unit_of(column->format, least > 0 ? std::min(most, 1e4 * least) : most);
    grid.heading.push_back(column->heading + (unit.scale == 0 ? "" : fmt::format(" ({})", unit.name)));
    grid.text.push_back(column->format == lab::Format::text);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::optional<double> number = lab::number_in(rows[r], key);
      grid.rows[r].push_back(number && unit.scale > 0 ? number_in(*number / unit.scale) : report::cell(rows[r], *column));
    }
  }
  const bool marks = !result.rows.empty() && oversubscribed(result);
  if (marks) {
    grid.heading.emplace_back("");
    grid.text.push_back(true);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      grid.rows[r].emplace_back(rows[r].value(key::oversubscribed, false) ? "*" : "");
    }
  }
  return grid;
}

std::string busy_note(const Evidence& evidence) {
  std::vector<Record> rows;
  for (const ResultSet* source : {&evidence.first, &evidence.beside}) {
    for (const auto& [id, result] : source->results) {
      // Losses are the same on a busy machine.
      const bool timed = !source->simulated && !result.experiment->by_losses;
      const std::vector<Record> measured = timed ? measured_rows(result) : std::vector<Record>();
      rows.insert(rows.end(), measured.begin(), measured.end());
    }
  }
  return lab::other_processes_finding(rows);
}

Document compose(const Sheet& sheet, const std::vector<SheetTask>& tasks, const Cover& cover, const Evidence& evidence) {
  Document document{sheet.title, cover.name.empty() ? "Name: ____________________" : cover.name, cover.date, {}, {}};
  std::string note = fmt::format("Made with Baton by `{}`. {} on {}.", cover.command,
                                 evidence.first.simulated ? "Simulated" : "Measured", evidence.first.summary);
  bool shared = false;
  bool starred = false;                           // also by what was measured in addition to a simulation
  std::map<std::string, std::string> reduced_by;  // the experiments that have it
  bool larger_beside = false;                     // whether reduced experiments are simulated too, at the sheet's sizes
  for (const auto& [id, result] : evidence.first.results) {
    shared = shared || oversubscribed(result);
    for (const std::string& one : reductions(result)) {
      reduced_by[one] += (reduced_by[one].empty() ? "`" : ", `") + id + "`";
      const lab::Result* other = find_result(evidence.beside, id);
      larger_beside = larger_beside || (evidence.beside.simulated && other != nullptr && !is_reduced(*other));
    }
  }
  for (const auto& [id, result] : evidence.beside.results) {
    starred = starred || oversubscribed(result);
  }
  const std::string beside = evidence.beside.results.empty()
                                 ? ""
                                 : fmt::format(" {} shown next to them, simulated on {}.",
                                               larger_beside ? "The sheet's own sizes are" : "The same experiments are",
                                               evidence.beside.summary);
  const std::string more_than_cores =
      " Values marked * are of more devices than cores: the devices took turns, so their times say what a split costs and not what "
      "it gains.";
  if (shared) {
    note += more_than_cores + beside;
  } else if (evidence.first.parts_of_gpu) {
    note +=
        " The parts have multiprocessors of their own but share the memory, its bandwidth and the power, so their times say what a "
        "split costs and not what separate GPUs gain." +
        beside;
  } else if (evidence.first.simulated && !evidence.beside.results.empty()) {
    note += measured_beside_text(tasks, evidence) + (starred ? more_than_cores : "");
  }
  document.notes.push_back({note});
  if (const std::string busy = busy_note(evidence); !busy.empty()) {
    document.notes.push_back({busy});
  }
  if (const std::set<std::int64_t> missing = missing_devices(evidence.first); !missing.empty()) {
    std::vector<std::string> counts;
    for (const std::int64_t count : missing) {
      counts.push_back(std::to_string(count));
    }
    document.notes.push_back({fmt::format(
        "{} has {}: rows for {} devices are missing{}.", evidence.first.devices, lab::devices_text(evidence.first.most_devices),
        lab::listing(counts), cover.large_cluster.empty() ? "" : fmt::format("; `--cluster {}` has them", cover.large_cluster))});
  }
  std::string reduced;
  for (const auto& [what, experiments] : reduced_by) {
    reduced += fmt::format("{}{} ({})", reduced.empty() ? "" : "; ", what, experiments);
  }
  if (!reduced.empty()) {
    document.notes.push_back(
        {fmt::format("Sizes are reduced: {}. The sheet's own: `{}`{}.", reduced, cover.full_command,
                     larger_beside && !shared && !evidence.first.parts_of_gpu
                         ? fmt::format("; simulated on {}, they are shown next to the measured ones", evidence.beside.summary)
                         : "")});
  }
  for (const SheetTask& task : tasks) {
    document.sections.push_back(section_of(task, evidence));
  }
  return document;
}

}  // namespace baton::sheet
