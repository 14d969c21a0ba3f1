#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "baton/lab/experiment.h"
#include "support/usage_sentence.h"

/// Rows with numbers made up by hand, as the measurements of a training job would leave them.
namespace baton::lab::test {

using baton::test::says;
using baton::test::silent_on;
using baton::test::usage_sentence;

/// Rows as experiments take them, and back as JSON.
inline std::vector<Record> records(const std::vector<Json>& rows) { return {rows.begin(), rows.end()}; }
inline std::vector<Json> jsons(const std::vector<Record>& records) {
  std::vector<Json> rows;
  for (const Record& record : records) {
    rows.push_back(record.json());
  }
  return rows;
}

/// One device of a row; shares of the step and bytes per step.
inline Json device(double busy, double waiting = 0, std::int64_t peak = 1 << 20, std::int64_t sent = 0, std::int64_t received = 0) {
  return {{"name", "cpu:0"},   {"busy", busy},   {"idle", 1 - busy},   {"waiting", waiting}, {"exposed", 0.0},
          {"overlapped", 0.0}, {"delayed", 0.0}, {"peak_bytes", peak}, {"sent_bytes", sent}, {"received_bytes", received}};
}

/// A step of `ms`, four fifths of it computing, known to a hundredth from five instances.
inline Json trained(double ms, std::int64_t devices = 1) {
  const double ns = ms * 1e6;
  Json list = Json::array();
  for (std::int64_t d = 0; d < devices; ++d) {
    list.push_back(device(0.8));
  }
  return {{"devices", devices},
          {"time_per_step_ns", ns},
          {"time_low_ns", 0.99 * ns},
          {"time_high_ns", 1.01 * ns},
          {"instances", 5},
          {"mean_ns", ns},
          {"std_ns", 0.02 * ns},
          {"samples_per_s", 64e9 / ns},
          {"compute_ns", 0.8 * ns},
          {"communication_ns", 0.1 * ns},
          {"exposed_ns", 0.1 * ns},
          {"waiting_ns", 0.05 * ns},
          {"delayed_ns", 0.0},
          {"rest_ns", 0.05 * ns},
          {"peak_bytes", 1 << 20},
          {"sent_bytes", 1000000},
          {"transfers", 2},
          {"transfers_forward", 1},
          {"flops", 100000000},
          {"global_batch", 64},
          {"steps_timed", 100},
          {"warmup", 5},
          {"messages", Json::array()},
          {"device_list", list},
          {"losses", {1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05}},
          {"origin", "measured"},
          {"oversubscribed", false}};
}

/// `row` with these values put in.
inline Json with(Json row, const Json& values) {
  row.update(values);
  return row;
}

/// The rows after the experiment has filled in what they owe to one another.
inline std::vector<Json> derived(const std::string& id, const std::vector<Json>& rows) {
  const Experiment& experiment = experiment_by_id(id);
  std::vector<Record> derived = records(rows);
  if (experiment.derive) {
    experiment.derive(derived);
  }
  return jsons(derived);
}

/// What the experiment answers to its questions, those that it cannot answer left out, and then its details.
inline std::vector<std::string> sentences(const std::string& id, const std::vector<Json>& given) {
  const Experiment& experiment = experiment_by_id(id);
  const std::vector<Record> rows = records(derived(id, given));
  std::vector<std::string> all;
  for (const Question& question : experiment.questions) {
    if (std::string text = question.answer ? question.answer(rows) : ""; !text.empty()) {
      all.push_back(std::move(text));
    }
  }
  for (std::string& sentence : experiment.details ? experiment.details(rows) : std::vector<std::string>()) {
    all.push_back(std::move(sentence));
  }
  return all;
}

/// What the experiment answers to one question, by the question's id.
inline std::string answer(const std::string& id, const std::string& question, const std::vector<Json>& given) {
  const std::vector<Record> rows = records(derived(id, given));
  for (const Question& one : experiment_by_id(id).questions) {
    if (one.id == question && one.answer) {
      return one.answer(rows);
    }
  }
  ADD_FAILURE() << id << " has no answer to " << question;
  return {};
}

/// The rows with more than this many devices as oversubscribed ones.
inline std::vector<Json> on_cores(std::int64_t cores, std::vector<Json> rows) {
  for (Json& row : rows) {
    row["oversubscribed"] = row["devices"].get<std::int64_t>() > cores;
  }
  return rows;
}

/// The rows as simulated ones.
inline std::vector<Json> simulated(std::vector<Json> rows) {
  for (Json& row : rows) {
    row["origin"] = "simulated";
  }
  return rows;
}

/// The first sentence of what the experiment says of these rows.
inline std::string headline(const std::string& id, const std::vector<Json>& rows) { return sentences(id, rows).at(0); }

/// All that the experiment says of these rows, one sentence per line.
inline std::string findings(const std::string& id, const std::vector<Json>& rows) {
  std::string all;
  for (const std::string& sentence : sentences(id, rows)) {
    all += sentence + "\n";
  }
  return all;
}

}  // namespace baton::lab::test
