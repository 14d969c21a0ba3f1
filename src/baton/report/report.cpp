#include "baton/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "baton/base/text.h"
#include "baton/findings/median.h"
#include "baton/lab/rows.h"
#include "baton/report/table.h"

namespace baton::report {
namespace {

using lab::Format;
using lab::Json;
using lab::Record;
namespace key = lab::key;

/// Long sentences over several lines, with a mark in front of the first. Lines of a sentence stay lines.
std::string wrapped(const std::string& sentence, std::size_t columns, const std::string& mark) {
  std::string out;
  std::string line;
  const auto flush = [&] {
    out += (out.empty() ? mark : "  ") + line + "\n";
    line.clear();
  };
  for (const std::string_view paragraph : split(sentence, '\n')) {
    bool first = true;
    for (const std::string_view word : split(paragraph, ' ')) {
      const std::string text(word);
      if (!first && display_width(line) + 1 + display_width(text) > columns) {
        flush();
        line = text;
      } else {
        line += (first ? "" : " ") + text;
      }
      first = false;
    }
    flush();
  }
  return out;
}

/// A sentence; the lines that follow the first are a block of code.
std::string with_log(const std::string& sentence) {
  const std::size_t newline = sentence.find('\n');
  return newline == std::string::npos
             ? sentence
             : fmt::format("{}\n\n```\n{}\n```", sentence.substr(0, newline), sentence.substr(newline + 1));
}

/// The Markdown with escaped tags: no name that a result brought along is taken for HTML.
std::string without_tags(const std::string& markdown) {
  std::string out;
  for (std::size_t i = 0; i < markdown.size(); ++i) {
    const char next = i + 1 < markdown.size() ? markdown[i + 1] : ' ';
    const bool letter = (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z');
    const bool tag = markdown[i] == '<' && (letter || next == '/' || next == '!' || next == '?');
    out += tag ? "&lt;" : std::string(1, markdown[i]);
  }
  return out;
}

/// The text as a cell of a Markdown table.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '|' ? "\\|" : std::string(1, c);
  }
  return out;
}

std::string_view kind_text(lab::Plot::Type kind) {
  switch (kind) {
    case lab::Plot::Type::line:
      return "line";
    case lab::Plot::Type::scatter:
      return "scatter";
    case lab::Plot::Type::bars:
      return "bars";
    case lab::Plot::Type::stacked:
      return "stacked";
    case lab::Plot::Type::histogram:
      return "histogram";
  }
  return "";
}

/// True if a point has a value that the plot shows.
bool draws_something(const lab::Plot& plot, const std::vector<Record>& points) {
  const auto has = [](const Record& point, const std::string& column) {
    const Json* value = point.find(column);
    return value != nullptr && value->is_number();
  };
  return std::any_of(points.begin(), points.end(), [&](const Record& point) {
    return plot.kind == lab::Plot::Type::stacked
               ? std::any_of(plot.parts.begin(), plot.parts.end(), [&](const std::string& part) { return has(point, part); })
               : has(point, plot.y);
  });
}

Json curves_json(const lab::Plot& plot, const std::vector<Record>& rows) {
  Json list = Json::array();
  for (const lab::Curve& curve : plot.curves ? plot.curves(rows) : std::vector<lab::Curve>()) {
    Json points = Json::array();
    for (const auto& [x, y] : curve.points) {
      points.push_back({x, y});
    }
    list.push_back({{"name", curve.name}, {"series", curve.series}, {"points", points}});
  }
  return list;
}

/// Up to the first stop that a new sentence follows.
std::string first_sentence(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool stops = text[at] == '.' || text[at] == '!' || text[at] == '?';
    if (text[at] == '\n' || (stops && at + 2 < text.size() && text[at + 1] == ' ' && text[at + 2] >= 'A' && text[at + 2] <= 'Z')) {
      return text.substr(0, text[at] == '\n' ? at : at + 1);
    }
  }
  return text;
}

/// The first answers of two experiments at most: of those that tell most if they are there, otherwise of the first ones.
Json headline(const std::vector<lab::Result>& results) {
  std::vector<const lab::Result*> order;
  for (const char* telling : {"strong-scaling", "idle", "comm-vs-compute", "dp-vs-ddp", "delay"}) {
    for (const lab::Result& result : results) {
      if (result.experiment->id == telling) {
        order.push_back(&result);
      }
    }
  }
  for (const lab::Result& result : results) {
    if (std::find(order.begin(), order.end(), &result) == order.end()) {
      order.push_back(&result);
    }
  }
  Json list = Json::array();
  for (const lab::Result* result : order) {
    const auto first = std::find_if(result->answers.begin(), result->answers.end(),
                                    [](const lab::Answer& answer) { return !answer.text.empty(); });
    if (first != result->answers.end() && list.size() < 2) {
      list.push_back({{"question", first->question}, {"text", first_sentence(first->text)}});
    }
  }
  return list;
}

/// The spread of the machine's speed, from the rates at which the same computation ran at every point.
Json noise_json(std::vector<double> rates) {
  if (rates.size() < 3) {
    return {};
  }
  std::sort(rates.begin(), rates.end());
  const double spread = (rates[rates.size() * 9 / 10] - rates[rates.size() / 10]) / findings::median(rates);
  return {{key::core_peak_gflops.name, rates},
          {"spread", spread},
          {"sentence", fmt::format("{}: the same computation, timed at every point, varied by {:.1f} % (10th to 90th "
                                   "percentile){}.",
                                   spread < 0.05   ? "The machine was quiet"
                                   : spread < 0.15 ? "There was some noise"
                                                   : "The machine was noisy",
                                   100 * spread, spread < 0.05 ? "" : "; smaller differences mean little")}};
}

}  // namespace

std::string reference(const std::string& id) {
  const std::vector<std::string_view> parts = split(id, '/');
  if (parts.size() != 3) {
    return id;
  }
  const std::string_view sheet = parts[0] == "hw1"          ? "HW1"
                                 : parts[0] == "hw3"        ? "HW3"
                                 : parts[0] == "practical8" ? "Practical 8"
                                 : parts[0] == "csye-hw4"   ? "CSYE HW4"
                                                            : parts[0];
  return fmt::format("{} {} {}, {}", sheet, parts[0].starts_with("csye") ? "Part" : "Task", parts[1], parts[2]);
}

std::string to_terminal(const lab::Result& result) {
  const lab::Experiment& experiment = *result.experiment;
  std::string out = fmt::format("{} - {}\n{}\n{}\n", experiment.id, experiment.title, experiment.task,
                                result.trained.empty() ? "" : fmt::format("Trained: {}\n", result.trained));
  for (const lab::Answer& answer : result.answers) {
    if (!answer.text.empty()) {
      out += fmt::format("{}{}\n{}\n", answer.question, answer.id.empty() ? "" : fmt::format(" ({})", reference(answer.id)),
                         wrapped(answer.text, 110, "  "));
    }
  }
  ShownTable shown = shown_table(result);
  std::vector<bool> text;
  for (std::size_t c = 0; c < shown.columns.size(); ++c) {
    text.push_back(shown.columns[c].format == Format::text);
    std::vector<std::string> column;
    for (const std::vector<std::string>& row : shown.cells) {
      column.push_back(row[c]);
    }
    align_points(column);
    for (std::size_t r = 0; r < shown.cells.size() && !text.back(); ++r) {
      shown.cells[r][c] = column[r];
    }
  }
  Table table(shown.headings, text);
  for (std::size_t r = 0; r < shown.cells.size(); ++r) {
    table.row(shown.cells[r], shown.marks[r]);
  }
  out += table.text();
  for (const std::string& note : shown.notes) {
    out += wrapped(note, 110, "");
  }
  out += '\n';
  for (const std::string& sentence : result.details) {
    out += wrapped(sentence, 110, "- ");
  }
  out += fmt::format("\nReproduce with: {}\n", result.command);
  // Texts from files must not control the terminal.
  std::replace_if(
      out.begin(), out.end(), [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f; }, '?');
  return out;
}

std::string to_markdown(const lab::Result& result) {
  const lab::Experiment& experiment = *result.experiment;
  std::string out = fmt::format("## {} (`{}`)\n\n{}\n\n{}", experiment.title, experiment.id, experiment.task,
                                result.trained.empty() ? "" : fmt::format("Trained: {}.\n\n", result.trained));
  for (const lab::Answer& answer : result.answers) {
    if (!answer.text.empty()) {
      out += fmt::format("**{}**{}\n\n{}\n\n", answer.question, answer.id.empty() ? "" : fmt::format(" ({})", reference(answer.id)),
                         with_log(answer.text));
    }
  }
  const ShownTable shown = shown_table(result);
  const auto line = [&](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      out += fmt::format("| {} ", escaped(text));
    }
    out += "|\n";
  };
  line(shown.headings);
  for (const lab::Column& column : shown.columns) {
    out += column.format == Format::text ? "|---" : "|---:";
  }
  out += "|\n";
  for (std::size_t r = 0; r < shown.cells.size(); ++r) {
    std::vector<std::string> row = shown.cells[r];
    row[shown.marked] += shown.marks[r].empty() ? "" : " " + shown.marks[r];
    line(row);
  }
  for (const std::string& note : shown.notes) {
    out += fmt::format("\n{}\n", note);
  }
  out += '\n';
  for (const std::string& sentence : result.details) {
    out += fmt::format("- {}\n", with_log(sentence));
  }
  return out + fmt::format("\n`{}`\n", result.command);
}

namespace {

/// The settings that a row was trained with: the last columns of its CSV.
constexpr std::array<const char*, 7> trained_keys{key::model.name,     key::strategy.name, key::batch.name, key::optimizer.name,
                                                  key::precision.name, key::seed.name,     key::device.name};

}  // namespace

std::string csv_cell(const Json& value) {
  std::string text = value.is_null() ? "" : lab::word_of(value);
  if (text.find_first_of(",\"\n") != std::string::npos) {
    std::string doubled;
    for (const char c : text) {
      doubled += c == '"' ? "\"\"" : std::string(1, c);
    }
    text = "\"" + doubled + "\"";
  }
  return text;
}

std::string to_csv(const lab::Result& result) {
  std::string out;
  std::vector<std::string> keys;
  for (const lab::Column& column : result.experiment->columns) {
    keys.push_back(column.key);
  }
  keys.insert(keys.end(), {key::time_low_ns, key::time_high_ns, key::origin, key::oversubscribed, key::reason});
  for (std::size_t k = 0; k < keys.size(); ++k) {
    out += (k == 0 ? "" : ",") + keys[k];
  }
  for (const char* name : trained_keys) {
    out += fmt::format(",trained_{}", name);
  }
  out += '\n';
  const auto cell = [](const Record& record, const std::string& column) {
    const Json* value = record.find(column);
    return csv_cell(value == nullptr ? Json() : *value);
  };
  for (const Record& row : result.rows) {
    for (std::size_t k = 0; k < keys.size(); ++k) {
      out += (k == 0 ? "" : ",") + cell(row, keys[k]);
    }
    const Record trained = row.value(key::trained, {});
    for (const char* name : trained_keys) {
      out += "," + cell(trained, name);
    }
    out += '\n';
  }
  return out;
}

Json to_json(const lab::Result& result) {
  const lab::Experiment& experiment = *result.experiment;
  const ShownTable shown = shown_table(result);
  Json columns = Json::array();
  for (const lab::Column& column : shown.columns) {
    columns.push_back({{"key", column.key}, {"heading", column.heading}, {"format", lab::to_text(column.format)}});
  }
  Json answers = Json::array();
  for (const lab::Answer& answer : result.answers) {
    answers.push_back(
        {{"id", answer.id}, {"reference", reference(answer.id)}, {"question", answer.question}, {"text", answer.text}});
  }
  Json timelines = job::to_stored(result.timelines);
  for (Json& timeline : timelines) {
    timeline.emplace(key::gpus.name, Json::array());  // records of an earlier version lack it
  }
  Json plots = Json::array();
  for (const lab::Plot& plot : experiment.plots) {
    const std::vector<Record> points = lab::points_of(plot, result.rows);
    if (!draws_something(plot, points)) {
      continue;
    }
    plots.push_back({{"kind", kind_text(plot.kind)},
                     {"title", plot.title},
                     {"x", plot.x},
                     {"y", plot.y},
                     {"x_title", plot.x_title},
                     {"y_title", plot.y_title},
                     {"x_format", lab::to_text(plot.x_format)},
                     {"y_format", lab::to_text(plot.y_format)},
                     {"series", plot.series},
                     {"ideal", plot.ideal},
                     {"log_x", plot.log_x},
                     {"log_y", plot.log_y},
                     {"error", plot.low.empty() ? Json::array() : Json::array({plot.low, plot.high})},
                     {"parts", plot.parts},
                     {"part_titles", plot.part_titles},
                     {"theory", plot.theory},
                     {"rows", plot.points ? job::to_stored(points) : Json()},
                     {"curves", curves_json(plot, result.rows)}});
  }
  return {{"id", experiment.id},
          {"part", experiment.part},
          {"part_title", lab::part_title(experiment.part)},
          {"title", experiment.title},
          {"task", experiment.task},
          {key::trained.name, result.trained},
          {"answers", answers},
          {"preset", lab::to_text(result.preset)},
          {"columns", columns},
          {"notes", shown.notes},
          {"rows", job::to_stored(result.rows)},
          {"plots", plots},
          {"details", result.details},
          {"command", result.command},
          {"timelines", timelines}};
}

Json to_report(const std::vector<lab::Result>& results, const lab::RunSpec& kept) {
  Json experiments = Json::array();
  std::vector<double> core_peaks;
  bool oversubscribed = false;
  for (const lab::Result& result : results) {
    for (const Record& row : result.rows) {
      oversubscribed = oversubscribed || row.value(key::oversubscribed, false);
      if (row.has(key::core_peak_gflops)) {
        core_peaks.push_back(row[key::core_peak_gflops]);
      }
    }
    experiments.push_back(to_json(result));
  }
  Json machine = kept.environment;
  machine[key::oversubscribed.name] = oversubscribed;
  return {{"title", kept.title.empty() ? "Experiments" : kept.title},
          {"created", kept.created.empty() ? "at a time that was not kept" : kept.created},
          {"command", kept.run_command},
          {"preset", lab::to_text(results.empty() ? lab::Preset::quick : results.front().preset)},
          {"environment", machine},
          {"noise", noise_json(std::move(core_peaks))},
          {"headline", headline(results)},
          {"experiments", experiments}};
}

std::string to_markdown(const std::vector<lab::Result>& results, const Json& report) {
  const Json& environment = report["environment"];
  const std::string machine = fmt::format("{} with {} cores", environment.value("cpu", "?"), environment.value("cores", 0));
  const std::string where = environment.contains("simulated_on")
                                ? fmt::format("simulated on {}, computed on {}", environment["simulated_on"].get<std::string>(),
                                              machine)
                                : "on " + machine;
  std::string out = fmt::format("# {}\n\n{}, {}. `{}`\n\n", report["title"].get<std::string>(),
                                report["created"].get<std::string>(), where, report["command"].get<std::string>());
  for (const Json& one : report["headline"]) {
    out += fmt::format("**{}** {}\n\n", one["question"].get<std::string>(), one["text"].get<std::string>());
  }
  if (report["noise"].is_object()) {
    out += report["noise"]["sentence"].get<std::string>() + "\n\n";
  }
  for (const lab::Result& result : results) {
    out += to_markdown(result) + "\n";
  }
  return without_tags(out);
}

}  // namespace baton::report
