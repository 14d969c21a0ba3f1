// make_sample_report RESULTS.json REPORT.json: the report of results that nobody measured, by the program's own code, so that the
// tests of the page see what the page is given.
#include <array>
#include <fstream>
#include <iostream>
#include <iterator>

#include "baton/report/report.h"

namespace {

using namespace baton;
using lab::Format;
using lab::Json;
using lab::Plot;

Format format_of(const std::string& text) {
  for (const Format format : {Format::text, Format::integer, Format::number, Format::time, Format::bytes, Format::percent,
                              Format::ratio, Format::rate, Format::flops}) {
    if (lab::to_text(format) == text) {
      return format;
    }
  }
  throw std::runtime_error("no format is called " + text);
}

Plot::Type kind_of(const std::string& text) {
  return text == "line"        ? Plot::Type::line
         : text == "scatter"   ? Plot::Type::scatter
         : text == "bars"      ? Plot::Type::bars
         : text == "histogram" ? Plot::Type::histogram
                               : Plot::Type::stacked;
}

std::vector<lab::Record> records_of(const Json& list) { return {list.begin(), list.end()}; }

std::vector<lab::Curve> curves_of(const Json& list) {
  std::vector<lab::Curve> curves;
  for (const Json& one : list) {
    curves.push_back({.name = one.at("name"), .series = one.at("series"), .points = one.at("points")});
  }
  return curves;
}

Plot plot_of(const Json& json) {
  const auto error = json.value("error", std::array<std::string, 2>());
  Plot plot{.kind = kind_of(json.at("kind")),
            .title = json.at("title"),
            .x = json.at("x"),
            .y = json.value("y", ""),
            .x_title = json.at("x_title"),
            .y_title = json.at("y_title"),
            .y_format = format_of(json.at("y_format")),
            .series = json.value("series", ""),
            .ideal = json.value("ideal", "none"),
            .log_x = json.value("log_x", false),
            .log_y = json.value("log_y", false),
            .low = error[0],
            .high = error[1],
            .parts = json.value("parts", std::vector<std::string>()),
            .part_titles = json.value("part_titles", std::vector<std::string>()),
            .theory = json.value("theory", ""),
            .x_format = format_of(json.value("x_format", "number"))};
  if (json.contains("rows")) {
    plot.points = [points = records_of(json["rows"])](const std::vector<lab::Record>&) { return points; };
  }
  if (json.contains("curves")) {
    plot.curves = [curves = curves_of(json["curves"])](const std::vector<lab::Record>&) { return curves; };
  }
  return plot;
}

lab::Result result_of(const Json& json) {
  auto experiment = std::make_shared<lab::Experiment>();
  experiment->id = json.at("id");
  experiment->part = json.at("part");
  experiment->title = json.at("title");
  experiment->task = json.at("task");
  for (const Json& column : json.at("columns")) {
    experiment->columns.push_back({column.at("key"), column.at("heading"), format_of(column.at("format"))});
  }
  for (const Json& plot : json.value("plots", Json::array())) {
    experiment->plots.push_back(plot_of(plot));
  }
  std::vector<lab::Answer> answers;
  for (const Json& answer : json.value("answers", Json::array())) {
    answers.push_back({answer.at("id"), answer.at("question"), answer.at("text")});
  }
  return {.experiment = experiment,
          .rows = records_of(json.at("rows")),
          .answers = std::move(answers),
          .details = json.at("details"),
          .timelines = records_of(json.value("timelines", Json::array())),
          .command = json.at("command")};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: make_sample_report RESULTS.json REPORT.json\n";
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const Json sample = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  std::vector<lab::Result> results;
  for (const Json& one : sample.at("results")) {
    results.push_back(result_of(one));
  }
  Json report = report::to_report(results, {.title = sample.at("title"),
                                            .run_command = sample.at("command"),
                                            .created = sample.at("created"),
                                            .environment = sample.at("environment")});
  report["playground"] = sample.at("playground");
  std::ofstream(argv[2], std::ios::binary) << report;
  return 0;
}
