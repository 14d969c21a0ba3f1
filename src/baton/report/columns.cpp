#include "baton/report/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "baton/base/units.h"
#include "baton/lab/rows.h"

namespace baton::report {
namespace {

using lab::Format;
using lab::Json;
using lab::Record;
namespace key = lab::key;

struct Unit {
  double factor = 1;
  const char* name = "";
};

std::span<const Unit> units_of(Format format) {
  static constexpr Unit times[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}};
  static constexpr Unit bytes[] = {{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}};
  static constexpr Unit flops[] = {{1e12, "TFLOP"}, {1e9, "GFLOP"}, {1e6, "MFLOP"}, {1e3, "kFLOP"}, {1, "FLOP"}};
  switch (format) {
    case Format::time:
      return times;
    case Format::bytes:
      return bytes;
    case Format::flops:
      return flops;
    default:
      return {};
  }
}

/// Places after the point that leave this many significant figures of a number below one.
int decimals_for(double value, int figures) {
  return value == 0 ? 0 : std::min(9, figures - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
}

/// One place, or two significant figures below one percent.
std::string percent_text(double share) {
  const bool small = share != 0 && std::abs(share) < 0.00995;
  return fmt::format("{:.{}f}", 100 * share, small ? decimals_for(100 * share, 2) : 1);
}

/// Two places, or three significant figures below a tenth.
std::string ratio_text(double ratio) {
  const bool small = ratio != 0 && std::abs(ratio) < 0.1;
  return fmt::format("{:.{}f}×", ratio, small ? decimals_for(ratio, 3) : 2);
}

/// Three significant figures, but none before the point cut off.
std::string rate_text(double rate) {
  const double size = std::abs(rate);
  return fmt::format("{:.{}f}", rate, size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : decimals_for(rate, 3));
}

/// Six significant figures at most, but all figures of a whole number; very large ones in powers of ten.
std::string number_text(double number) {
  const double size = std::abs(number);
  const bool whole = size < 1e15 && (number == std::floor(number) || size >= 999999.5);
  return whole ? fmt::format("{:.0f}", number) : fmt::format("{:.6g}", number);
}

/// The sizes of the values that are not zero, from the least on.
std::vector<double> sizes_of(const std::vector<Record>& rows, const lab::Column& column) {
  std::vector<double> sizes;
  for (const Record& row : rows) {
    const Json* value = row.find(column.key);
    if (value != nullptr && value->is_number() && value->get<double>() != 0) {
      sizes.push_back(std::abs(value->get<double>()));
    }
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

/// The unit that a column's numbers are written in. Columns of the same format share one where their sizes lie close enough.
Unit unit_of(const std::vector<Record>& rows, const std::vector<lab::Column>& columns, const lab::Column& column) {
  const std::span<const Unit> units = units_of(column.format);
  std::vector<double> all;
  for (const lab::Column& beside : columns) {
    const std::vector<double> sizes = beside.format == column.format ? sizes_of(rows, beside) : std::vector<double>();
    all.insert(all.end(), sizes.begin(), sizes.end());
  }
  if (units.empty() || all.empty()) {
    return {};
  }
  std::sort(all.begin(), all.end());
  const std::vector<double> own = sizes_of(rows, column);
  const std::vector<double>& leading = own.empty() || all.back() / all.front() < 1000 ? all : own;
  const double middle = leading[leading.size() / 2];
  const auto fits = std::find_if(units.begin(), units.end(), [&](const Unit& unit) { return middle >= 0.9995 * unit.factor; });
  return fits == units.end() ? units.back() : *fits;
}

/// The places of all factors of a column: two, or as many as leave the least one two significant figures.
int ratio_places(const std::vector<Record>& rows, const lab::Column& column) {
  const std::vector<double> sizes = sizes_of(rows, column);
  return sizes.empty() || sizes.front() >= 0.1 ? 2 : decimals_for(sizes.front(), 2);
}

/// True if the number depends on how long things took, so that devices without a core of their own change it.
bool is_timed(const lab::Column& column) {
  return column.format != Format::bytes && column.format != Format::integer && column.format != Format::text &&
         column.format != Format::flops;
}

std::size_t places(const std::string& text) {
  const std::size_t point = text.find('.');
  return point == std::string::npos ? 0 : text.size() - point - 1;
}

}  // namespace

std::string cell(const Record& row, const lab::Column& column) {
  const Json* value = row.find(column.key);
  if (value == nullptr || value->is_null()) {
    return "";
  }
  if (!value->is_number()) {
    return lab::word_of(*value);
  }
  const double number = value->get<double>();
  switch (column.format) {
    case Format::time:
      return to_text(Nanoseconds(static_cast<std::int64_t>(number)));
    case Format::bytes:
      return to_text(Bytes(static_cast<std::int64_t>(number)));
    case Format::percent:
      return percent_text(number) + " %";
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

ShownTable shown_table(const lab::Result& result) {
  ShownTable table;
  for (const lab::Column& column : result.experiment->columns) {
    const bool known = std::any_of(result.rows.begin(), result.rows.end(), [&](const Record& row) {
      const Json* value = row.find(column.key);
      return value != nullptr && !value->is_null();
    });
    if (known || !column.if_known) {
      table.columns.push_back(column);
    }
  }
  std::vector<Unit> units;
  std::vector<int> ratios;  // places of factors
  for (const lab::Column& column : table.columns) {
    ratios.push_back(column.format == Format::ratio ? ratio_places(result.rows, column) : 0);
    units.push_back(column.format == Format::percent ? Unit{0.01, "%"} : unit_of(result.rows, table.columns, column));
    table.headings.push_back(units.back().name[0] == '\0' ? column.heading
                                                          : fmt::format("{} ({})", column.heading, units.back().name));
  }
  const auto devices = std::find_if(table.columns.begin(), table.columns.end(), [](const lab::Column& column) {
    return column.key == key::devices.name || column.key == key::used.name;
  });
  table.marked = devices == table.columns.end() ? 0 : static_cast<std::size_t>(devices - table.columns.begin());
  const bool timed = std::any_of(table.columns.begin(), table.columns.end(), is_timed);
  const bool mixed = std::any_of(result.rows.begin(), result.rows.end(), lab::is_simulated) &&
                     std::any_of(result.rows.begin(), result.rows.end(),
                                 [](const Record& row) { return !lab::is_simulated(row) && !row.has(key::reason); });
  bool crowded = false;
  for (const Record& row : result.rows) {
    table.cells.emplace_back();
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const lab::Column& column = table.columns[c];
      const Json* value = row.find(column.key);
      const bool numeric = value != nullptr && value->is_number();
      const bool counted = numeric && !units_of(column.format).empty();
      const double number = numeric ? value->get<double>() : 0;
      const bool whole = units[c].factor == 1 && number == std::floor(number);
      table.cells.back().push_back(row.has(key::reason) && value == nullptr      ? "-"
                                   : counted && whole                            ? fmt::format("{:.0f}", number)
                                   : counted                                     ? rate_text(number / units[c].factor)
                                   : column.format == Format::percent && numeric ? percent_text(number)
                                   : column.format == Format::ratio && numeric   ? fmt::format("{:.{}f}×", number, ratios[c])
                                                                                 : cell(row, column));
    }
    const bool shares_cores = timed && row.value(key::oversubscribed, false);
    crowded = crowded || shares_cores;
    table.marks.push_back(std::string(shares_cores ? "†" : "") + (mixed && lab::is_simulated(row) ? "‡" : ""));
  }
  if (crowded) {
    table.notes.emplace_back(
        "† more devices than cores: they take turns, so the time says what the split costs, not what more hardware would gain");
  }
  if (mixed) {
    table.notes.emplace_back("‡ simulated");
  } else if (std::any_of(result.rows.begin(), result.rows.end(), lab::is_simulated)) {
    table.notes.emplace_back("all rows are simulated");
  }
  return table;
}

void align_points(std::vector<std::string>& column) {
  const auto is_plain = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("-+.0123456789") == std::string::npos;
  };
  std::size_t most = 0;
  for (const std::string& text : column) {
    most = is_plain(text) ? std::max(most, places(text)) : most;
  }
  for (std::string& text : column) {
    if (is_plain(text) && text != "-" && places(text) < most) {
      text += std::string(most - places(text) + (places(text) == 0 ? 1 : 0), ' ');
    }
  }
}

}  // namespace baton::report
