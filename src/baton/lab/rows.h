#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "baton/base/units.h"
#include "baton/findings/difference.h"
#include "baton/findings/straggler.h"
#include "baton/lab/experiment.h"
#include "baton/lab/json.h"

/// Functions with which `derive`, answers and details are written.
namespace baton::lab {

/// A string unquoted; any other value as JSON text.
std::string word_of(const Json& value);

inline Nanoseconds time_of(const Record& row, job::Key<Nanoseconds> key = key::time_per_step_ns) { return row[key]; }
inline Bytes bytes_of(const Record& row, job::Key<Bytes> key) { return row[key]; }
/// The value of a column in words.
std::string text(const Record& row, const std::string& column);
/// The devices of a row: experiments of the course count them, a sweep may name them (cpu:4).
job::DeviceList devices_of(const Record& row);

/// The number of a column that is named at run time; nullopt if it has none.
std::optional<double> number_in(const Record& row, const std::string& column);

/// The rows whose `key` is `value`.
template <typename T>
std::vector<Record> rows_with(const std::vector<Record>& rows, job::Key<T> key, const std::type_identity_t<T>& value) {
  std::vector<Record> found;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
               [&](const Record& row) { return row.has(key) && row[key] == value; });
  return found;
}
/// The values of `key`, each once, in order.
template <typename T>
std::vector<T> values_of(const std::vector<Record>& rows, job::Key<T> key) {
  std::vector<T> values;
  for (const Record& row : rows) {
    if (row.has(key) && std::find(values.begin(), values.end(), row[key]) == values.end()) {
      values.push_back(row[key]);
    }
  }
  return values;
}
/// The values of any column as words, each once, in order.
std::vector<std::string> words_of(const std::vector<Record>& rows, const std::string& column);
template <job::Numeric T>
std::vector<double> numbers_of(const std::vector<Record>& rows, job::Key<T> key) {
  std::vector<double> values;
  for (const Record& row : rows) {
    values.push_back(number(row, key));
  }
  return values;
}

/// Adds `speedup` over the row with the fewest `devices` among rows that agree in `same`, `base_devices` (how many those
/// are) and `efficiency`: the speedup over how many times as many devices there are. `speedup_low` and `speedup_high` follow
/// from the ends of the intervals of both times.
void add_speedup(std::vector<Record>& rows, const std::vector<std::string>& same);

/// The rows that have more devices than those that their speedup is over.
std::vector<Record> beyond_base(const std::vector<Record>& rows);

/// The ratio of the times of two rows, and whether it is beyond the noise: a test at the 1 % level over fresh instances of
/// both. `pairs` is from how many pairs a statement was chosen, as the fastest and the slowest of several rows are. Rows
/// that did not take turns also differ by what the machine drifted in between. A row of one instance, or of a version that
/// did not store instances, differs from no other.
findings::Difference difference_of(const Record& a, const Record& b, std::size_t pairs = 1);
bool differs(const Record& a, const Record& b, std::size_t pairs = 1);
/// The number of pairs that can be made of these rows.
constexpr std::size_t pairs_among(std::size_t rows) { return rows < 2 ? 1 : rows * (rows - 1) / 2; }
/// The difference of two rows that were chosen from several, as the fastest and the slowest are: the level is divided by how many
/// pairs those make, and a row whose few instances happen to agree counts as scattering like the others.
findings::Difference difference_among(const Record& a, const Record& b, const std::vector<Record>& rows);
/// The difference of two speedups: how many times as fast each row is as its base. What the machine drifted between a row and its
/// base counts, what it drifted between the two pairs does not.
findings::Difference difference_of_speedups(const Record& a, const Record& base_a, const Record& b, const Record& base_b,
                                            std::size_t pairs = 1);
/// "beyond the noise", or "within the noise at the 1 % level (a difference of 3.1 % would have been seen)".
std::string noise_text(const findings::Difference& difference);
/// The relative error that a value in the middle of an interval may have: 1 if it may be wrong by a factor of two. Infinite
/// if nothing is known.
double relative_uncertainty(const findings::Interval& interval);
/// The relative error that a row's time may have, with 99 % confidence.
double relative_uncertainty(const Record& row);
/// "0.91 to 5.52 with 99 % confidence": the interval of the ratio that the verdict rests on.
std::string tested_text(const findings::Difference& difference);
/// After the ratio of two times: empty if they differ, else ", within the noise (0.91 to 5.52 with 99 % confidence)".
std::string ratio_noise_text(const findings::Difference& difference);

/// The rows in which each device had a core of its own.
std::vector<Record> with_own_cores(const std::vector<Record>& rows);
/// The rows for an experiment's first sentence: among those with several devices the ones with a core per device, if there are any,
/// and of these the ones with the most devices.
std::vector<Record> headline_rows(const std::vector<Record>& rows);
/// The numbers of devices, each once: that of the headline, and the others in order.
std::vector<std::int64_t> device_counts(const std::vector<Record>& rows);
/// " (devices shared cores)" after what is said of such rows; empty after what is said of others.
std::string shared_cores_mark(const std::vector<Record>& rows);

/// A ratio with two places, below a tenth with three significant figures: "1.46", "0.0863".
std::string ratio_text(double ratio);
/// "12.3 %"; below a tenth of a percent with up to two figures: "0.059 %", "0.01 %".
std::string percent(double share);
/// True if the row was simulated and not measured.
bool is_simulated(const Record& row);
/// A sentence that warns of oversubscribed rows; empty if there are none.
std::string oversubscribed_note(const std::vector<Record>& rows);
/// Adds that sentence if it is not empty.
void add_oversubscribed_note(std::vector<std::string>& sentences, const std::vector<Record>& rows);
/// A sentence on where the step of a row went: compute, exposed communication, waiting, delay.
std::string attribution(const Record& row, const std::string& what);

/// The arrivals of a row's devices at collectives; empty if the row does not say.
std::vector<findings::ArrivalStats> arrival_stats_of(const Record& row);

/// The column that most tables have.
Column time_column();
/// Plots that several experiments have: step times with their uncertainty, and the speedup by devices compared with the ideal.
Plot time_plot(Plot::Type kind, std::string title, std::string x, std::string x_title, std::string series = "");
Plot speedup_plot(std::string series = "");

}  // namespace baton::lab
