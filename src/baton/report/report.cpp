#include "baton/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/text.h"
#include "baton/base/units.h"
#include "baton/findings/median.h"
#include "baton/lab/rows.h"
#include "baton/report/table.h"

namespace baton::report {
namespace {

using lab::Format;
using lab::Json;

std::vector<std::vector<std::string>> cells(const lab::Result& result) {
  std::vector<std::vector<std::string>> table(1);
  for (const lab::Column& column : result.experiment->columns) {
    table[0].push_back(column.heading);
  }
  for (const Json& row : result.rows) {
    table.emplace_back();
    for (const lab::Column& column : result.experiment->columns) {
      table.back().push_back(row.contains("reason") && !row.contains(column.key) ? "-" : cell(row, column));
    }
  }
  return table;
}

bool is_simulated(const Json& row) { return row.value("origin", "measured") == "simulated"; }

/// What is said behind a row whose numbers are not simply measured: oversubscribed, or simulated.
std::string mark(const Json& row) {
  const bool oversubscribed = row.value("oversubscribed", false);
  return (oversubscribed ? std::string("(oversubscribed)") : "") + (oversubscribed && is_simulated(row) ? "  " : "") +
         (is_simulated(row) ? "(simulated)" : "");
}

/// The same as a cell of its own.
std::string origin(const Json& row) {
  return row.value("origin", "-") + (row.value("oversubscribed", false) ? ", oversubscribed" : "");
}

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

/// A cell of a Markdown table.
/// No name that a result brought along is taken for HTML.
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

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '|' ? "\\|" : std::string(1, c);
  }
  return out;
}

std::string_view kind_text(lab::Plot::Kind kind) {
  return kind == lab::Plot::Kind::line ? "line" : kind == lab::Plot::Kind::bars ? "bars" : "stacked";
}

/// Places after the point that leave so many significant figures of what is below one.
int decimals_for(double value, int figures) {
  return value == 0 ? 0 : std::min(9, figures - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
}

/// One place, or two significant figures of what is below one percent.
std::string percent_text(double share) {
  const bool small = share != 0 && std::abs(share) < 0.00995;
  return fmt::format("{:.{}f} %", 100 * share, small ? decimals_for(100 * share, 2) : 1);
}

/// Two places, or three significant figures of what is below a tenth.
std::string ratio_text(double ratio) {
  const bool small = ratio != 0 && std::abs(ratio) < 0.1;
  return fmt::format("{:.{}f}×", ratio, small ? decimals_for(ratio, 3) : 2);
}

/// Three significant figures, but none before the point cut off.
std::string rate_text(double rate) {
  const double size = std::abs(rate);
  return fmt::format("{:.{}f}", rate, size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : decimals_for(rate, 3));
}

/// Six significant figures at most, but none of a whole number cut off; very large ones in powers of ten.
std::string number_text(double number) {
  const double size = std::abs(number);
  const bool whole = size < 1e15 && (number == std::floor(number) || size >= 999999.5);
  return whole ? fmt::format("{:.0f}", number) : fmt::format("{:.6g}", number);
}

}  // namespace

std::string cell(const Json& row, const lab::Column& column) {
  if (!row.contains(column.key) || row[column.key].is_null()) {
    return "";
  }
  const Json& value = row[column.key];
  if (!value.is_number()) {
    return lab::word_of(value);
  }
  const double number = value.get<double>();
  switch (column.format) {
    case Format::time:
      return to_text(Nanoseconds(static_cast<std::int64_t>(number)));
    case Format::bytes:
      return to_text(Bytes(static_cast<std::int64_t>(number)));
    case Format::percent:
      return percent_text(number);
    case Format::ratio:
      return ratio_text(number);
    case Format::rate:
      return rate_text(number);
    case Format::flops:
      return to_text(Flops(static_cast<std::int64_t>(number)));
    case Format::integer:
      return fmt::format("{:.0f}", number);
    default:
      return number_text(number);
  }
}

std::string to_terminal(const lab::Result& result) {
  const lab::Experiment& experiment = *result.experiment;
  std::string out = fmt::format("{} - {}\n{}\n\n", experiment.id, experiment.title, experiment.task);
  for (const lab::Answer& answer : result.answers) {
    if (!answer.text.empty()) {
      out += fmt::format("{}{}\n{}\n", answer.question, answer.id.empty() ? "" : fmt::format(" ({})", answer.id),
                         wrapped(answer.text, 110, "  "));
    }
  }
  const std::vector<std::vector<std::string>> rows = cells(result);
  std::vector<bool> text;
  for (const lab::Column& column : experiment.columns) {
    text.push_back(column.format == Format::text);
  }
  Table table(rows[0], text);
  for (std::size_t r = 1; r < rows.size(); ++r) {
    table.row(rows[r], mark(result.rows[r - 1]));
  }
  out += table.text();
  out += '\n';
  for (const std::string& sentence : result.details) {
    out += wrapped(sentence, 110, "- ");
  }
  out += fmt::format("\nReproduce with: {}\n", result.command);
  // What files brought along does not steer the terminal.
  std::replace_if(
      out.begin(), out.end(), [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f; }, '?');
  return out;
}

std::string to_markdown(const lab::Result& result) {
  const lab::Experiment& experiment = *result.experiment;
  std::string out = fmt::format("## {} (`{}`)\n\n{}\n\n", experiment.title, experiment.id, experiment.task);
  for (const lab::Answer& answer : result.answers) {
    if (!answer.text.empty()) {
      out += fmt::format("**{}**{}\n\n{}\n\n", answer.question, answer.id.empty() ? "" : fmt::format(" ({})", answer.id),
                         with_log(answer.text));
    }
  }
  const std::vector<std::vector<std::string>> table = cells(result);
  const bool marked = std::any_of(result.rows.begin(), result.rows.end(), [](const Json& row) { return !mark(row).empty(); });
  for (std::size_t r = 0; r < table.size(); ++r) {
    for (const std::string& text : table[r]) {
      out += fmt::format("| {} ", escaped(text));
    }
    if (marked) {
      out += "| " + (r > 0 ? origin(result.rows[r - 1]) : "origin") + " ";
    }
    out += "|\n";
    if (r == 0) {
      for (const lab::Column& column : experiment.columns) {
        out += column.format == Format::text ? "|---" : "|---:";
      }
      out += marked ? "|---" : "";
      out += "|\n";
    }
  }
  out += '\n';
  for (const std::string& sentence : result.details) {
    out += fmt::format("- {}\n", with_log(sentence));
  }
  return out + fmt::format("\n`{}`\n", result.command);
}

std::string to_csv(const lab::Result& result) {
  std::string out;
  const auto quoted = [](const Json& value) {
    std::string text = value.is_null() ? "" : lab::word_of(value);
    if (text.find_first_of(",\"\n") != std::string::npos) {
      std::string doubled;
      for (const char c : text) {
        doubled += c == '"' ? "\"\"" : std::string(1, c);
      }
      text = "\"" + doubled + "\"";
    }
    return text;
  };
  std::vector<std::string> keys;
  for (const lab::Column& column : result.experiment->columns) {
    keys.push_back(column.key);
  }
  keys.insert(keys.end(), {"time_low_ns", "time_high_ns", "origin", "oversubscribed", "reason"});
  for (std::size_t k = 0; k < keys.size(); ++k) {
    out += (k == 0 ? "" : ",") + keys[k];
  }
  out += '\n';
  for (const Json& row : result.rows) {
    for (std::size_t k = 0; k < keys.size(); ++k) {
      out += (k == 0 ? "" : ",") + quoted(row.value(keys[k], Json()));
    }
    out += '\n';
  }
  return out;
}

Json to_json(const lab::Result& result) {
  const lab::Experiment& experiment = *result.experiment;
  Json columns = Json::array();
  for (const lab::Column& column : experiment.columns) {
    columns.push_back({{"key", column.key}, {"heading", column.heading}, {"format", lab::to_text(column.format)}});
  }
  Json answers = Json::array();
  for (const lab::Answer& answer : result.answers) {
    answers.push_back({{"id", answer.id}, {"question", answer.question}, {"text", answer.text}});
  }
  Json plots = Json::array();
  for (const lab::Plot& plot : experiment.plots) {
    plots.push_back({{"kind", kind_text(plot.kind)},
                     {"title", plot.title},
                     {"x", plot.x},
                     {"y", plot.y},
                     {"x_title", plot.x_title},
                     {"y_title", plot.y_title},
                     {"y_format", lab::to_text(plot.y_format)},
                     {"series", plot.series},
                     {"ideal", plot.ideal},
                     {"log_x", plot.log_x},
                     {"log_y", plot.log_y},
                     {"error", plot.low.empty() ? Json::array() : Json::array({plot.low, plot.high})},
                     {"parts", plot.parts},
                     {"part_titles", plot.part_titles}});
  }
  return {{"id", experiment.id},       {"part", experiment.part},   {"title", experiment.title},
          {"task", experiment.task},   {"answers", answers},        {"preset", lab::to_text(result.preset)},
          {"columns", columns},        {"rows", result.rows},       {"plots", plots},
          {"details", result.details}, {"command", result.command}, {"timelines", result.timelines}};
}

Json to_report(const std::vector<lab::Result>& results, const lab::RunSpec& kept) {
  Json experiments = Json::array();
  std::vector<double> pulses;
  bool oversubscribed = false;
  for (const lab::Result& result : results) {
    for (const Json& row : result.rows) {
      oversubscribed = oversubscribed || row.value("oversubscribed", false);
      if (row.contains("pulse_gflops")) {
        pulses.push_back(row["pulse_gflops"].get<double>());
      }
    }
    experiments.push_back(to_json(result));
  }
  Json noise;
  if (pulses.size() >= 3) {
    std::sort(pulses.begin(), pulses.end());
    const double spread = (pulses[pulses.size() * 9 / 10] - pulses[pulses.size() / 10]) / findings::median(pulses);
    noise = {{"pulse_gflops", pulses},
             {"spread", spread},
             {"sentence",
              fmt::format("A fixed piece of arithmetic, timed beside every point, varied by {:.1f} % (10th to 90th percentile): "
                          "{}.",
                          100 * spread,
                          spread < 0.05   ? "a quiet machine"
                          : spread < 0.15 ? "some noise"
                                          : "a noisy machine, so small "
                                            "differences mean little")}};
  }
  Json machine = kept.environment;
  machine["oversubscribed"] = oversubscribed;
  return {{"title", kept.title.empty() ? "Experiments" : kept.title},
          {"created", kept.created.empty() ? "at a time that was not kept" : kept.created},
          {"command", kept.run_command},
          {"preset", lab::to_text(results.empty() ? lab::Preset::quick : results.front().preset)},
          {"environment", machine},
          {"noise", noise},
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
  if (report["noise"].is_object()) {
    out += report["noise"]["sentence"].get<std::string>() + "\n\n";
  }
  for (const lab::Result& result : results) {
    out += to_markdown(result) + "\n";
  }
  return without_tags(out);
}

}  // namespace baton::report
